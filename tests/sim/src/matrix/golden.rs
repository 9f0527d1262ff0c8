//! The pages on disk, and how they differ from what the scripts do.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::io;
use std::path::{Path, PathBuf};

use super::Page;

/// Lines shown around the first difference of a page.
const AROUND: usize = 6;

/// A page that is not what its scripts do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The file's name.
    pub name: String,
    /// What differs.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.what)
    }
}

/// Where the pages are, in the sources that this was built from.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Writes the pages, and removes what is no page any more.
///
/// # Errors
/// The directory cannot be written.
pub fn write(pages: &[Page], directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for name in left_over(pages, directory)? {
        std::fs::remove_file(directory.join(name))?;
    }
    for page in pages {
        std::fs::write(directory.join(&page.name), &page.text)?;
    }
    Ok(())
}

/// Every page that is not what its scripts do, that is missing, or that no script makes.
///
/// # Errors
/// The directory cannot be read.
pub fn differences(pages: &[Page], directory: &Path) -> io::Result<Vec<Difference>> {
    let mut found = Vec::new();
    for page in pages {
        let what = match std::fs::read_to_string(directory.join(&page.name)) {
            Ok(text) if text == page.text => continue,
            Ok(text) => diff(&text, &page.text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "is missing".to_owned(),
            Err(error) => return Err(error),
        };
        found.push(Difference {
            name: page.name.clone(),
            what,
        });
    }
    for name in left_over(pages, directory)? {
        let what = "no script makes this page".to_owned();
        found.push(Difference { name, what });
    }
    Ok(found)
}

fn left_over(pages: &[Page], directory: &Path) -> io::Result<Vec<String>> {
    let known: BTreeSet<&str> = pages.iter().map(|page| page.name.as_str()).collect();
    let mut left = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !known.contains(name.as_str()) {
            left.push(name);
        }
    }
    left.sort();
    Ok(left)
}

/// What stands between the lines that both begin with and those that both end with, with its heading.
fn diff(golden: &str, now: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), now.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let heading = old[..same].iter().rev().find(|line| line.starts_with('#'));
    let mix = old[..same].iter().rev().find(|line| line.starts_with("## "));
    let mut text = format!(
        "differs from line {} on, under {} {}\n",
        same + 1,
        mix.unwrap_or(&""),
        heading.filter(|line| Some(*line) != mix).unwrap_or(&"")
    );
    let mut lines = |sign: char, lines: &[&str]| {
        for line in lines.iter().take(AROUND) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{sign} {line}");
        }
    };
    lines(' ', &old[same.saturating_sub(AROUND)..same]);
    lines('-', &old[same..]);
    lines('+', &new[same..]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_its_heading_and_both_sides() {
        let golden = "# p\n\n## commit\n\n### dies\nsame\nold\n";
        let now = "# p\n\n## commit\n\n### dies\nsame\nnew\n";
        let text = diff(golden, now);
        assert!(
            text.starts_with("differs from line 7 on, under ## commit ### dies\n"),
            "{text}"
        );
        assert!(text.ends_with("  same\n- old\n+ new\n"), "{text}");
    }
}
