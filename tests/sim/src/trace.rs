//! The trace: a line for everything that happens, readable as what each side did.

use std::fmt;

use crate::node::Micros;

/// Lines, or nothing at all, so that a run without them costs nothing.
#[derive(Clone, Debug)]
pub struct Trace {
    lines: Option<Vec<String>>,
    pub(crate) now: Micros,
}

impl Trace {
    pub(crate) fn new(keep: bool) -> Self {
        Self {
            lines: keep.then(Vec::new),
            now: 0,
        }
    }

    pub(crate) fn line(&mut self, who: impl fmt::Display, text: &dyn Fn() -> String) {
        if let Some(lines) = &mut self.lines {
            let (ms, us) = (self.now / 1_000, self.now % 1_000);
            lines.push(format!("{ms:>7}.{us:03} {who:<3} {}", text()));
        }
    }

    /// The lines so far; none if they are not kept.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    /// Drops the lines so far, for a script that shows what follows.
    pub fn clear(&mut self) {
        if let Some(lines) = &mut self.lines {
            lines.clear();
        }
    }
}
