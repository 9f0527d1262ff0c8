//! Whether sled would find the end of its log, asked before it is opened.
//!
//! sled takes the highest *stable LSN* of any segment header and expects every segment from the one that holds it
//! to the last one; it treats what lies behind a missing one as torn and forgets it, up to the whole log. After a
//! power cut that is right. But a segment just before the last may have been freed because nothing in it was alive
//! any more: then durable records would go. A snapshot moves the beginning of that stretch up to its own LSN,
//! which is that of the next segment where the log ends with one.
//! So a start looks first, keeps the snapshot where the log needs it, and refuses where nothing helps.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// sled's segment size, which the journal leaves at its default.
const SEGMENT_BYTES: i64 = 512 * 1024;

/// A segment's header: CRC-32, LSN, highest stable LSN, each field XORed.
const HEADER_BYTES: usize = 20;
const LSN_MASK: i64 = 0x7FFF_FFFF_FFFF_FFFF;

/// What the segment headers of a log file say: LSN to highest stable LSN.
pub(crate) struct Tail {
    segments: BTreeMap<i64, i64>,
}

impl Tail {
    /// Reads every segment header; those that do not check are no segments, as for sled.
    pub(crate) fn read(file: &File) -> io::Result<Self> {
        let length = i64::try_from(file.metadata()?.len()).unwrap_or(i64::MAX);
        let mut segments = BTreeMap::new();
        let mut at = 0;
        while at + HEADER_BYTES as i64 <= length {
            let mut header = [0; HEADER_BYTES];
            file.read_exact_at(&mut header, at.unsigned_abs())?;
            segments.extend(parse(&header));
            at += SEGMENT_BYTES;
        }
        Ok(Self { segments })
    }

    /// How many segments there are.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Whether there is no segment at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether sled finds the last segment when it starts from this LSN: 0, or that of a snapshot.
    pub(crate) fn is_whole_from(&self, lsn: i64) -> bool {
        let from = lsn / SEGMENT_BYTES * SEGMENT_BYTES;
        let stable = self
            .segments
            .range(from..)
            .map(|(_, stable)| *stable)
            .fold(from, i64::max);
        let lowest = stable.max(0) / SEGMENT_BYTES * SEGMENT_BYTES;
        match self.segments.last_key_value() {
            Some((last, _)) if *last >= lowest => {
                let expected = (last - lowest) / SEGMENT_BYTES + 1;
                self.segments.range(lowest..).count() as i64 == expected
            }
            // The snapshot of a log that ends with a segment: sled makes the next when it writes there.
            Some((last, _)) => lsn == last + SEGMENT_BYTES,
            None => false,
        }
    }
}

fn parse(header: &[u8; HEADER_BYTES]) -> Option<(i64, i64)> {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&header[at..at + 8]);
        i64::from_le_bytes(word) ^ LSN_MASK
    };
    let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) ^ u32::MAX;
    (crc32fast::hash(&header[4..]) == stored).then(|| (word(4), word(12)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(segments: &[(i64, i64)]) -> Tail {
        let at = |(number, stable): &(i64, i64)| (number * SEGMENT_BYTES, *stable);
        Tail {
            segments: segments.iter().map(at).collect(),
        }
    }

    #[test]
    fn a_log_without_a_hole_behind_its_stable_lsn_is_whole() {
        assert!(tail(&[(0, -1)]).is_whole_from(0));
        assert!(tail(&[(3, 0), (7, 3 * SEGMENT_BYTES), (8, 7 * SEGMENT_BYTES + 9)]).is_whole_from(0));
    }

    /// The story: segment 155 was freed, 156 is the last and says that 155 was stable; sled forgot everything.
    #[test]
    fn a_freed_segment_before_the_last_needs_the_snapshot() {
        let freed = tail(&[
            (3, 0),
            (150, 140 * SEGMENT_BYTES),
            (156, 155 * SEGMENT_BYTES + 77),
        ]);
        assert!(!freed.is_whole_from(0));
        assert!(freed.is_whole_from(156 * SEGMENT_BYTES + 100));
        assert!(!freed.is_whole_from(150 * SEGMENT_BYTES + 100));
    }

    /// sled makes the segment that such a snapshot names when it first writes there.
    #[test]
    fn the_snapshot_of_a_log_that_ends_with_a_segment_is_just_behind_it() {
        let full = tail(&[(3, 0), (5, 4 * SEGMENT_BYTES + 77)]);
        assert!(!full.is_whole_from(0));
        assert!(full.is_whole_from(6 * SEGMENT_BYTES));
        assert!(!full.is_whole_from(6 * SEGMENT_BYTES + 20) && !full.is_whole_from(7 * SEGMENT_BYTES));
    }

    #[test]
    fn a_hole_between_the_stable_segment_and_the_last_is_found() {
        assert!(!tail(&[(7, 0), (9, 7 * SEGMENT_BYTES)]).is_whole_from(0));
        assert!(tail(&[]).is_empty() && !tail(&[]).is_whole_from(0));
    }
}
