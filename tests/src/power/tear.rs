//! From the state of a disk to what is found on it after the power was cut: which of the unsynced changes survive.
//!
//! Content survives in units, sectors of 512 bytes or pages of 4 KiB: of each unit one of its states since the last sync, since the
//! page cache never writes half of what it holds of a unit. Lengths and names survive as a prefix of their changes,
//! each file's and each directory's of its own.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::disk::{Disk, File, Id, Node, ROOT, rename};
use super::trace::Change;

const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;

/// Seeded numbers (SplitMix64): the same seed gives the same image.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// For this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias of a remainder is far below what any of this could show.
        (self.next() % (bound.max(1) as u64)) as usize
    }

    /// True so often in a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }
}

/// Which of the unsynced changes survive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Survival {
    /// None.
    None,
    /// All: the process died and the power stayed.
    All,
    /// The first ones.
    Prefix,
    /// The last ones.
    Suffix,
    /// The last one only.
    LastOnly,
    /// All but one unit.
    OneLost,
    /// Each sector for itself.
    Sectors,
    /// Each page for itself.
    Pages,
}

impl Survival {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::All,
        Self::Prefix,
        Self::Suffix,
        Self::LastOnly,
        Self::OneLost,
        Self::Sectors,
        Self::Pages,
    ];

    /// One of them; the torn ones more often.
    pub fn any(dice: &mut Dice) -> Self {
        if dice.percent(40) {
            return [Self::Sectors, Self::Pages][dice.below(2)];
        }
        Self::ALL[dice.below(Self::ALL.len())]
    }
}

/// How many changes of all survive, where they do so as a prefix.
fn prefix(survival: Survival, all: usize, dice: &mut Dice) -> usize {
    match survival {
        Survival::None => 0,
        Survival::All => all,
        // The extremes are what programs fall over.
        _ => match dice.below(4) {
            0 => 0,
            1 => all,
            _ => dice.below(all + 1),
        },
    }
}

/// The bytes that a change touches, in a file that is at most `length` long.
fn touched(change: &Change, length: usize) -> Range<usize> {
    match change {
        Change::Written { offset, bytes } => *offset..offset + bytes.len(),
        Change::Hole { offset, bytes } => (*offset).min(length)..(offset + bytes).min(length),
        Change::Length(to) => (*to).min(length)..length,
        _ => 0..0,
    }
}

fn units(range: &Range<usize>, unit: usize) -> Range<usize> {
    if range.is_empty() {
        0..0
    } else {
        range.start / unit..(range.end - 1) / unit + 1
    }
}

/// How a unit fares: how often it was touched, how many of these survive, how many were seen so far.
#[derive(Clone, Copy, Default)]
struct Unit {
    touched: usize,
    survive: usize,
    seen: usize,
}

/// The content of a file after the cut.
#[must_use]
pub fn tear(file: &File, survival: Survival, dice: &mut Dice) -> Vec<u8> {
    let mut content = file.durable.clone();
    let changes = &file.pending;
    if changes.is_empty() {
        return content;
    }
    let mut lengths = vec![content.len()];
    for change in changes {
        let length = lengths[lengths.len() - 1];
        lengths.push(match change {
            Change::Written { offset, bytes } => length.max(offset + bytes.len()),
            Change::Length(to) => *to,
            Change::Extended(to) => length.max(*to),
            _ => length,
        });
    }
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let unit = match survival {
        Survival::Pages => PAGE_BYTES,
        Survival::Sectors => SECTOR_BYTES,
        _ => [SECTOR_BYTES, PAGE_BYTES][dice.below(2)],
    };
    let mut fates = fates(changes, longest, unit);
    let kept_length = choose(&mut fates, changes, longest, unit, survival, dice);
    content.resize(longest, 0);
    for change in changes {
        let range = touched(change, longest);
        for number in units(&range, unit) {
            let fate = fates.entry(number).or_default();
            fate.seen += 1;
            if fate.seen > fate.survive {
                continue;
            }
            let start = range.start.max(number * unit);
            let end = range.end.min((number + 1) * unit);
            match change {
                Change::Written { offset, bytes } => {
                    content[start..end].copy_from_slice(&bytes[start - offset..end - offset]);
                }
                _ => content[start..end].fill(0),
            }
        }
    }
    content.truncate(lengths[kept_length]);
    content
}

fn fates(changes: &[Change], longest: usize, unit: usize) -> BTreeMap<usize, Unit> {
    let mut fates: BTreeMap<usize, Unit> = BTreeMap::new();
    for change in changes {
        for number in units(&touched(change, longest), unit) {
            fates.entry(number).or_default().touched += 1;
        }
    }
    fates
}

/// Decides for each unit, and how many changes of the length survive.
fn choose(
    fates: &mut BTreeMap<usize, Unit>,
    changes: &[Change],
    longest: usize,
    unit: usize,
    survival: Survival,
    dice: &mut Dice,
) -> usize {
    let all = changes.len();
    let mut kept_length = prefix(survival, all, dice);
    match survival {
        Survival::None => {}
        Survival::All => fates.values_mut().for_each(|fate| fate.survive = fate.touched),
        Survival::Prefix => {
            kept_length = dice.below(all + 1);
            for change in &changes[..kept_length] {
                for number in units(&touched(change, longest), unit) {
                    fates.entry(number).or_default().survive += 1;
                }
            }
        }
        Survival::Suffix | Survival::LastOnly => {
            let from = if survival == Survival::LastOnly {
                all - 1
            } else {
                dice.below(all)
            };
            for change in &changes[from..] {
                for number in units(&touched(change, longest), unit) {
                    let fate = fates.entry(number).or_default();
                    fate.survive = fate.touched;
                }
            }
        }
        Survival::OneLost => {
            let lost = dice.below(fates.len());
            for (number, fate) in fates.values_mut().enumerate() {
                fate.survive = if number == lost {
                    dice.below(fate.touched)
                } else {
                    fate.touched
                };
            }
            kept_length = all;
        }
        Survival::Sectors | Survival::Pages => {
            let chance = [10, 50, 90][dice.below(3)];
            for fate in fates.values_mut() {
                fate.survive = if dice.percent(chance) {
                    fate.touched
                } else {
                    dice.below(fate.touched)
                };
            }
        }
    }
    kept_length
}

/// Makes the image of a disk in a new directory: each top directory, a node's, by its own choice.
///
/// # Errors
/// What the operating system says.
pub fn write(disk: &Disk, nodes: &HashMap<String, Survival>, dice: &mut Dice, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    let Node::Directory(root) = disk.node(ROOT) else {
        return Ok(());
    };
    // A node's directory too may not have been there for sure; its node then decides.
    let mut names = root.durable.clone();
    for naming in &root.pending {
        let of_this = match naming {
            super::disk::Naming::Made(name, _) | super::disk::Naming::Removed(name) => name,
            super::disk::Naming::Renamed(from, _) => from,
        };
        let survival = nodes.get(of_this).copied().unwrap_or(Survival::All);
        if prefix(survival, 1, dice) == 1 {
            rename(&mut names, [naming]);
        }
    }
    for (name, id) in names {
        let survival = nodes.get(&name).copied().unwrap_or(Survival::All);
        write_node(disk, id, survival, dice, &into.join(name))?;
    }
    Ok(())
}

fn write_node(disk: &Disk, id: Id, survival: Survival, dice: &mut Dice, path: &Path) -> Result<()> {
    match disk.node(id) {
        Node::File(file) => write_file(&tear(file, survival, dice), path),
        Node::Directory(directory) => {
            let kept = prefix(survival, directory.pending.len(), dice);
            let mut names = directory.durable.clone();
            rename(&mut names, &directory.pending[..kept]);
            fs::create_dir(path)?;
            for (name, id) in names {
                write_node(disk, id, survival, dice, &path.join(name))?;
            }
            Ok(())
        }
    }
}

/// Zeros become holes, as they are where nothing was written.
fn write_file(content: &[u8], path: &Path) -> Result<()> {
    let file = fs::File::create_new(path)?;
    file.set_len(content.len() as u64)?;
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    let mut run: Option<usize> = None;
    for (number, page) in content.chunks(PAGE_BYTES).enumerate() {
        let start = number * PAGE_BYTES;
        match (run, is_zero(page)) {
            (None, false) => run = Some(start),
            (Some(from), true) => {
                file.write_all_at(&content[from..start], from as u64)?;
                run = None;
            }
            (Some(_), false) | (None, true) => {}
        }
    }
    if let Some(from) = run {
        file.write_all_at(&content[from..], from as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(offset: usize, byte: u8, bytes: usize) -> Change {
        Change::Written {
            offset,
            bytes: vec![byte; bytes],
        }
    }

    fn file(durable: Vec<u8>, pending: Vec<Change>) -> File {
        let mut file = File::default();
        file.durable = durable;
        file.pending = pending;
        file
    }

    #[test]
    fn what_was_synced_and_not_touched_again_survives_every_cut() {
        let file = file(vec![1; 8192], vec![written(4096, 2, 4096), written(8192, 3, 100)]);
        for (seed, survival) in (0..200).flat_map(|seed| Survival::ALL.map(|survival| (seed, survival))) {
            let content = tear(&file, survival, &mut Dice::new(seed));
            assert!(content.len() >= 8192 && content[..4096] == vec![1; 4096]);
            assert!(content[4096..8192].iter().all(|byte| [1, 2].contains(byte)));
        }
    }

    #[test]
    fn all_is_what_the_page_cache_holds_and_none_is_what_was_synced() {
        let changes = vec![
            written(10, 7, 5_000),
            Change::Length(100),
            written(600, 9, 10),
            Change::Hole {
                offset: 0,
                bytes: 512,
            },
        ];
        let mut now = vec![1; 20];
        for change in &changes {
            super::super::disk::apply(&mut now, change);
        }
        let file = file(vec![1; 20], changes);
        assert_eq!(tear(&file, Survival::All, &mut Dice::new(1)), now);
        assert_eq!(tear(&file, Survival::None, &mut Dice::new(1)), vec![1; 20]);
    }

    #[test]
    fn a_sector_is_in_one_of_its_states_and_never_torn() {
        let file = file(vec![0; 4096], vec![written(0, 1, 4096), written(0, 2, 4096)]);
        let mut mixed = false;
        for seed in 0..100 {
            let content = tear(&file, Survival::Sectors, &mut Dice::new(seed));
            for sector in content.chunks(SECTOR_BYTES) {
                assert!(sector.iter().all(|byte| *byte == sector[0]));
            }
            mixed |= content[0] != content[512];
        }
        assert!(mixed, "no image was torn");
    }
}
