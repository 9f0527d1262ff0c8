//! Tells the payload of DATA frames from everything else that one side of an HTTP/2 connection writes (RFC 9113,
//! section 4.1).

/// "PRI * HTTP/2.0", two line ends, "SM", two line ends: what a client writes first (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// Length (3 bytes), type, flags, stream (4 bytes).
const HEADER_BYTES: usize = 9;

/// The type of a DATA frame.
const DATA: u8 = 0;

/// Where in the written bytes the connection is.
#[derive(Debug)]
pub(super) struct DataBytes {
    header: [u8; HEADER_BYTES],
    /// How much of the header has passed.
    header_len: usize,
    /// How much of the preface, or of the payload behind the header, is still to pass.
    left: usize,
    /// Whether what is left counts.
    is_data: bool,
}

impl DataBytes {
    pub(super) fn of_client() -> Self {
        Self {
            left: PREFACE_BYTES,
            ..Self::of_server()
        }
    }

    pub(super) fn of_server() -> Self {
        Self {
            header: [0; HEADER_BYTES],
            header_len: 0,
            left: 0,
            is_data: false,
        }
    }

    /// How many of these bytes, which follow those of the call before, are payload of DATA frames.
    pub(super) fn passed(&mut self, mut bytes: &[u8]) -> u64 {
        let mut data_bytes = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                bytes = &bytes[taken..];
                if self.is_data {
                    data_bytes += taken as u64;
                }
                continue;
            }
            let taken = (HEADER_BYTES - self.header_len).min(bytes.len());
            self.header[self.header_len..self.header_len + taken].copy_from_slice(&bytes[..taken]);
            self.header_len += taken;
            bytes = &bytes[taken..];
            if self.header_len == HEADER_BYTES {
                let [high, middle, low, kind, ..] = self.header;
                self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.is_data = kind == DATA;
                self.header_len = 0;
            }
        }
        data_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload_bytes: usize) -> Vec<u8> {
        let length = u32::try_from(payload_bytes).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, 0, 0, 0, 0, 1];
        // A payload that looks like the header of a DATA frame.
        frame.extend([0, 0, 9, 0, 0, 0, 0, 0, 1].iter().cycle().take(payload_bytes));
        frame
    }

    #[test]
    fn payload_of_data_frames_counts_however_the_bytes_are_cut() {
        const SETTINGS: u8 = 4;
        const HEADERS: u8 = 1;
        let mut written = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for (kind, payload_bytes) in [
            (SETTINGS, 18),
            (HEADERS, 70_000),
            (DATA, 1),
            (DATA, 0),
            (SETTINGS, 0),
            (DATA, 66_000),
            (HEADERS, 5),
        ] {
            written.extend(frame(kind, payload_bytes));
        }
        for cut in [1, 2, 7, 9, 10, 1000, 65_536, written.len()] {
            let mut client = DataBytes::of_client();
            let counted: u64 = written.chunks(cut).map(|bytes| client.passed(bytes)).sum();
            assert_eq!(counted, 66_001, "cut into {cut}");
            let mut server = DataBytes::of_server();
            let counted: u64 = written[PREFACE_BYTES..]
                .chunks(cut)
                .map(|bytes| server.passed(bytes))
                .sum();
            assert_eq!(counted, 66_001, "cut into {cut}");
        }
    }

    #[test]
    fn byte_counts_when_it_passes_and_not_before() {
        let mut server = DataBytes::of_server();
        let written = frame(DATA, 3);
        let counted: Vec<_> = written.iter().map(|byte| server.passed(&[*byte])).collect();
        assert_eq!(counted, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
    }
}
