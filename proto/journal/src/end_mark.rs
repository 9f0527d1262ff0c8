//! How far the log was forced, written beside it: what tells a lost tail from a torn one.
//!
//! For sled a damaged byte near the end of its log is a write that a crash cut short, and what follows is
//! forgotten without a word. So after each force, and before anybody is told of it, the committer writes the LSN of the
//! last durable record to `<dir>/end`; an open whose log ends below it reports a [`LostTail`]. The mark is never ahead of
//! the log, because it is written only after the force. It has no force of its own but at checkpoints, at a clean
//! stop and where it falls: after a power cut it may say less, and then finds less. A mark that does not
//! check is *unknown*, as that of a directory made before there were any; it is never a wrong number.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// First bytes of the file, with its version.
const MAGIC: [u8; 8] = *b"cov-end1";
const LSN_END: usize = MAGIC.len() + 8;
const MARK_BYTES: usize = LSN_END + 4;

/// A log that ends below what was forced in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostTail {
    /// LSN of the last record that is there; 0 for none.
    pub ends_at: u64,
    /// LSN of the last record that is known to have been durable; above `ends_at`.
    pub forced: u64,
}

impl LostTail {
    /// What a log that ends at `ends_at` lost; `None` for nothing that is known.
    pub(crate) fn of(ends_at: u64, forced: Option<u64>) -> Option<Self> {
        forced
            .filter(|forced| *forced > ends_at)
            .map(|forced| Self { ends_at, forced })
    }
}

impl fmt::Display for LostTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ends_at, forced } = self;
        let first = ends_at + 1;
        write!(
            f,
            "the log ends at record {ends_at}, but record {forced} was forced in it: records {first} to {forced} are gone"
        )
    }
}

/// The open file of a mark.
pub(crate) struct EndMark {
    file: File,
    /// What the file says; 0 for unknown.
    noted: AtomicU64,
}

impl EndMark {
    /// Opens the mark, and makes its file, with its place in the directory durable, where there is none.
    pub(crate) fn open(directory: &Path, name: &str) -> io::Result<Self> {
        let path = directory.join(name);
        let made = !path.try_exists()?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        if made {
            file.sync_all()?;
            File::open(directory)?.sync_all()?;
        }
        let noted = read(&file)?.unwrap_or(0);
        if noted == 0 && file.metadata()?.len() > 0 {
            tracing::warn!(
                path = %path.display(),
                "the mark of the log's end does not decode; a lost tail would not be found by this start"
            );
        }
        Ok(Self {
            file,
            noted: AtomicU64::new(noted),
        })
    }

    /// What the mark says; `None` for unknown.
    pub(crate) fn noted(&self) -> Option<u64> {
        Some(self.noted.load(Ordering::Acquire)).filter(|noted| *noted > 0)
    }

    /// Overwrites the mark.
    pub(crate) fn note(&self, lsn: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(lsn), 0)?;
        self.noted.store(lsn, Ordering::Release);
        Ok(())
    }

    /// Makes what was noted durable.
    pub(crate) fn force(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn read(file: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0; MARK_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(decode(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn encode(lsn: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..LSN_END].copy_from_slice(&lsn.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..LSN_END]);
    bytes[LSN_END..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; MARK_BYTES]) -> Option<u64> {
    let (body, crc) = bytes.split_at(LSN_END);
    let lsn = body.strip_prefix(&MAGIC)?.first_chunk::<8>()?;
    (crc32c::crc32c(body) == crate::envelope::read_u32(crc)).then(|| u64::from_le_bytes(*lsn))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every mix of an old and a new mark that a torn write can leave is one of the two, or unknown.
    #[test]
    fn a_torn_or_damaged_mark_is_unknown_and_never_another_number() {
        let (old, new) = (encode(255), encode(256));
        assert_eq!((decode(&old), decode(&new)), (Some(255), Some(256)));
        for torn in 0..=MARK_BYTES {
            let mut bytes = old;
            bytes[..torn].copy_from_slice(&new[..torn]);
            assert!(matches!(decode(&bytes), None | Some(255 | 256)), "{torn}");
        }
        for bit in 0..MARK_BYTES * 8 {
            let mut bytes = new;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes), None, "bit {bit}");
        }
        assert_eq!(decode(&[0; MARK_BYTES]), None);
    }

    #[test]
    fn only_an_end_below_what_was_forced_is_a_loss() {
        assert_eq!(LostTail::of(5, None), None);
        assert_eq!(LostTail::of(5, Some(5)), None);
        assert_eq!(LostTail::of(6, Some(5)), None);
        let lost = LostTail::of(5, Some(9)).map(|lost| lost.to_string());
        assert!(lost.is_some_and(|words| words.contains("records 6 to 9 are gone")));
    }
}
