//! The one place that writes to stdout: tables for people, JSON and YAML for programs.
//!
//! `json` is one indented object for the whole answer, `jsonl` one compact object for each item, `yaml` the same object
//! as `json`. A reader that went away (a closed pipe) is no error. Nothing here writes talk to stdout, or data to stderr.

use std::io::{self, Write};

use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, presets};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::exit::{Exit, Failure};

/// How answers are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// More columns for people.
    Wide,
    /// One indented JSON object.
    Json,
    /// One compact JSON object per line and item.
    Jsonl,
    /// YAML, the same object as json.
    Yaml,
}

/// Whether anybody still reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    There,
    Gone,
}

/// Columns with their rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    /// Columns of numbers.
    right: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.to_vec(),
            ..Self::default()
        }
    }

    /// Aligns these columns to the right.
    pub(crate) fn right(mut self, columns: &[usize]) -> Self {
        self.right = columns.to_vec();
        self
    }

    pub(crate) fn row(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.header.len(), "a row has one cell per column");
        self.rows.push(row);
    }

    pub(crate) fn render(&self, with_header: bool) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        if with_header {
            table.set_header(self.header.clone());
        }
        table.add_rows(
            self.rows
                .iter()
                .map(|row| row.iter().map(|cell| shown(cell)).collect::<Vec<_>>()),
        );
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if self.right.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n") + "\n"
    }
}

/// An empty cell reads as one.
fn shown(cell: &str) -> String {
    if cell.is_empty() {
        "-".to_owned()
    } else {
        // What a participant wrote must not steer the terminal of whoever looks at it.
        cell.replace(char::is_control, " ")
    }
}

/// A list under its name, with the token of the next page if there is one.
struct List<'a, T> {
    name: &'static str,
    items: &'a [T],
    next: &'a str,
}

impl<T: Serialize> Serialize for List<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.name, self.items)?;
        if !self.next.is_empty() {
            map.serialize_entry("next_page_token", self.next)?;
        }
        map.end()
    }
}

/// Writes answers in one format.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    pub(crate) format: Format,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// Whether the answer is for a program.
    pub(crate) fn is_for_programs(self) -> bool {
        match self.format {
            Format::Table | Format::Wide => false,
            Format::Json | Format::Jsonl | Format::Yaml => true,
        }
    }

    /// Whether more columns are wanted.
    pub(crate) fn is_wide(self) -> bool {
        self.format == Format::Wide
    }

    /// Writes one object.
    pub(crate) fn one(
        self,
        value: &impl Serialize,
        tables: impl FnOnce(bool) -> Vec<Table>,
    ) -> Result<(), Failure> {
        let text = self.render(value, tables)?;
        write(&text).map(drop)
    }

    /// Writes a list under its name; `next` names the next page.
    pub(crate) fn list<T: Serialize>(
        self,
        name: &'static str,
        items: &[T],
        next: &str,
        table: impl FnOnce(bool) -> Table,
    ) -> Result<(), Failure> {
        if self.format == Format::Jsonl {
            let lines: Result<Vec<String>, Failure> = items.iter().map(compact).collect();
            return write(&lines?.concat()).map(drop);
        }
        self.one(&List { name, items, next }, |wide| vec![table(wide)])
    }

    /// Writes one item of a list that never ends: the header before the first, JSON always compact.
    pub(crate) fn item(
        self,
        value: &impl Serialize,
        is_first: bool,
        table: impl FnOnce(bool) -> Table,
    ) -> Result<Reader, Failure> {
        let text = match self.format {
            Format::Table => table(false).render(is_first),
            Format::Wide => table(true).render(is_first),
            Format::Json | Format::Jsonl => compact(value)?,
            Format::Yaml => format!("---\n{}", yaml(value)?),
        };
        write(&text)
    }

    /// Says why there is no answer, and what to do: on stderr for people, on stdout for programs too.
    pub(crate) fn fail(self, failure: &Failure) -> Exit {
        let mut talk = format!("covenant: {}: {}\n", failure.code, failure.message);
        for next in &failure.next {
            talk.push_str(&format!("next: {next}\n"));
        }
        // Nothing is left to tell it to.
        let _ = io::stderr().write_all(talk.as_bytes());
        if self.is_for_programs() {
            let _ = self.one(&failure.view(), |_| Vec::new());
        }
        failure.exit
    }

    fn render(
        self,
        value: &impl Serialize,
        tables: impl FnOnce(bool) -> Vec<Table>,
    ) -> Result<String, Failure> {
        let columns = |tables: Vec<Table>| {
            tables
                .iter()
                .map(|table| table.render(true))
                .collect::<Vec<_>>()
                .join("\n")
        };
        match self.format {
            Format::Table => Ok(columns(tables(false))),
            Format::Wide => Ok(columns(tables(true))),
            Format::Json => {
                Ok(serde_json::to_string_pretty(value).map_err(|error| unwritable(&error))? + "\n")
            }
            Format::Jsonl => compact(value),
            Format::Yaml => yaml(value),
        }
    }
}

/// Writes text to stdout and flushes it.
pub(crate) fn write(text: &str) -> Result<Reader, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::internal(
            "STDOUT",
            format!("stdout could not be written: {error}"),
        )),
    }
}

/// One JSON object on a line.
pub(crate) fn compact(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string(value).map_err(|error| unwritable(&error))? + "\n")
}

fn yaml(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_saphyr::to_string(value).map_err(|error| unwritable(&error))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn unwritable(error: &dyn std::error::Error) -> Failure {
    Failure::internal(
        "OUTPUT",
        format!("the answer could not be written in this format: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["ACCOUNT", "POSTED"]).right(&[1]);
        table.row(vec!["alice".into(), "500000".into()]);
        table.row(vec![String::new(), "0".into()]);
        table
    }

    #[test]
    fn a_cell_steers_no_terminal() {
        let mut table = Table::new(&["REASON"]);
        table.row(vec!["bad\u{1b}[31m\ncode\u{9b}".into()]);
        assert!(!table.render(false).trim_end().contains(char::is_control));
    }

    #[test]
    fn a_table_has_aligned_columns_and_no_trailing_blanks() {
        assert_eq!(
            table().render(true),
            "ACCOUNT  POSTED\nalice    500000\n-             0\n"
        );
    }

    #[test]
    fn a_list_has_its_name_and_a_token_only_if_there_is_more() {
        let items = [1, 2];
        let text = |next| {
            serde_json::to_string(&List {
                name: "accounts",
                items: &items,
                next,
            })
            .unwrap()
        };
        assert_eq!(text(""), r#"{"accounts":[1,2]}"#);
        assert_eq!(text("t"), r#"{"accounts":[1,2],"next_page_token":"t"}"#);
    }

    #[test]
    fn one_value_in_every_format() {
        let value = serde_json::json!({"a": 1, "b": null});
        let render = |format| {
            Output::new(format)
                .render(&value, |_| vec![table(), table()])
                .unwrap()
        };
        assert_eq!(render(Format::Json), "{\n  \"a\": 1,\n  \"b\": null\n}\n");
        assert_eq!(render(Format::Jsonl), "{\"a\":1,\"b\":null}\n");
        let read: serde_json::Value = serde_saphyr::from_str(&render(Format::Yaml)).unwrap();
        assert_eq!(read, value);
        assert_eq!(render(Format::Table).matches("ACCOUNT").count(), 2);
    }
}
