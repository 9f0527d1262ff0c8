//! Amounts for people: minor units of THB as baht.

use std::fmt;

/// Minor units of THB; 100 of them are one baht.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Money(pub(super) i64);

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minor = self.0.unsigned_abs();
        let digits = (minor / 100).to_string();
        let mut grouped = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{grouped}.{:02} THB", minor % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped_and_minor_units_are_two_digits() {
        for (minor, text) in [
            (0, "0.00 THB"),
            (5, "0.05 THB"),
            (100_000, "1,000.00 THB"),
            (-99_999, "-999.99 THB"),
            (123_456_789, "1,234,567.89 THB"),
        ] {
            assert_eq!(Money(minor).to_string(), text);
        }
    }
}
