//! What the kernel says of a process: CPU time and resident memory.
//!
//! A process that is gone, or whose figures cannot be read, has none.

/// The kernel's unit of CPU time in `/proc`, which is the same on every Linux that this runs on.
const TICK_US: u64 = 10_000;

/// CPU time and memory of one process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessFigures {
    /// In user and kernel mode since its start, to 10 ms.
    pub(super) cpu_us: u64,
    pub(super) resident_kib: u64,
    /// The most that was resident since its start.
    pub(super) peak_kib: u64,
}

impl ProcessFigures {
    /// Of the process of this id.
    pub(super) fn of(process: u32) -> Option<Self> {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}")).ok();
        let status = read("status")?;
        Some(Self {
            cpu_us: cpu_us(&read("stat")?)?,
            resident_kib: kib(&status, "VmRSS:")?,
            peak_kib: kib(&status, "VmHWM:")?,
        })
    }
}

fn cpu_us(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything: the fields are counted from its end.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) * TICK_US)
}

fn kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0";
        assert_eq!(cpu_us(stat), Some(420_000));
        assert_eq!(kib("VmHWM:\t  1234 kB\nVmRSS:\t 12 kB\n", "VmRSS:"), Some(12));
    }

    #[test]
    fn this_process_has_figures() {
        let own = ProcessFigures::of(std::process::id()).unwrap();
        assert!(own.resident_kib > 0 && own.peak_kib >= own.resident_kib);
        assert!(ProcessFigures::of(u32::MAX).is_none());
    }
}
