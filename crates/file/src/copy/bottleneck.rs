//! What limited a copy: the CPU, other work on it, the source's device, the target's, or the flush.

/// What the time of a copy was spent on, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeBreakdown {
    /// All of it, flushing included.
    pub total: u64,
    /// CPU time of the process.
    pub cpu: u64,
    /// Ready to run, and without a CPU; `None` where the kernel does not count it.
    pub run_queue: Option<u64>,
    /// Flushing at the end.
    pub flush: u64,
    /// In calls that read the source, where these are apart from those that write, and were timed.
    pub reading: Option<u64>,
    /// In calls that write the target, likewise.
    pub writing: Option<u64>,
}

/// What limited a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyBottleneck {
    /// Copying bytes in the kernel.
    Cpu,
    /// Other work had the CPU.
    OtherWork,
    /// It waited for the source.
    Source,
    /// It waited for the target, before the flush.
    Target,
    /// It waited until all was on the device.
    Flush,
}

/// The share of the time from which on something is named as what limited a copy.
pub const MIN_BOTTLENECK_SHARE: f64 = 0.6;

impl TimeBreakdown {
    /// A part as a share of the whole time, 0 to 1.
    pub fn share(&self, part: u64) -> f64 {
        (part as f64 / self.total.max(1) as f64).min(1.0)
    }

    /// Nanoseconds that it neither ran, nor flushed, nor is known to have waited for a CPU: it waited for a device, or for who serves a
    /// file.
    pub fn waiting(&self) -> u64 {
        self.total.saturating_sub(self.cpu).saturating_sub(self.run_queue.unwrap_or(0)).saturating_sub(self.flush)
    }

    /// What took most of the time, and its share. `is_cached` says whether the source was in memory before.
    pub fn bottleneck(&self, is_cached: bool) -> (CopyBottleneck, f64) {
        let waited_for = match (self.reading, self.writing) {
            (Some(reading), Some(writing)) if writing > reading => CopyBottleneck::Target,
            (Some(_), Some(_)) => CopyBottleneck::Source,
            _ if is_cached => CopyBottleneck::Target,
            _ => CopyBottleneck::Source,
        };
        // The CPU time of a flush is little, and counts twice.
        let parts = [
            (CopyBottleneck::Cpu, self.cpu),
            (CopyBottleneck::OtherWork, self.run_queue.unwrap_or(0)),
            (CopyBottleneck::Flush, self.flush),
            (waited_for, self.waiting()),
        ];
        let most =
            parts.into_iter().fold((CopyBottleneck::Cpu, 0), |most, part| if part.1 > most.1 { part } else { most });
        (most.0, self.share(most.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU_BOUND: TimeBreakdown =
        TimeBreakdown { total: 1000, cpu: 950, run_queue: Some(20), flush: 0, reading: Some(300), writing: Some(690) };

    #[test]
    fn largest_share_is_the_bottleneck() {
        assert_eq!(CPU_BOUND.bottleneck(true), (CopyBottleneck::Cpu, 0.95));
        assert_eq!(TimeBreakdown { cpu: 200, flush: 700, ..CPU_BOUND }.bottleneck(true), (CopyBottleneck::Flush, 0.7));
        assert_eq!(
            TimeBreakdown { cpu: 300, run_queue: Some(650), ..CPU_BOUND }.bottleneck(true),
            (CopyBottleneck::OtherWork, 0.65)
        );
        assert_eq!(
            TimeBreakdown { cpu: 200, reading: Some(800), writing: Some(190), ..CPU_BOUND }.bottleneck(false),
            (CopyBottleneck::Source, 0.78)
        );
        assert_eq!(
            TimeBreakdown { cpu: 200, reading: Some(100), writing: Some(890), ..CPU_BOUND }.bottleneck(false),
            (CopyBottleneck::Target, 0.78)
        );
    }

    #[test]
    fn unsplit_wait_is_source_unless_cached() {
        let together = TimeBreakdown { cpu: 100, reading: None, writing: None, ..CPU_BOUND };
        assert_eq!(together.bottleneck(false).0, CopyBottleneck::Source);
        assert_eq!(together.bottleneck(true).0, CopyBottleneck::Target);
    }

    #[test]
    fn zero_time_has_valid_shares() {
        let none = TimeBreakdown::default();
        assert_eq!((none.bottleneck(true), none.waiting()), ((CopyBottleneck::Cpu, 0.0), 0));
        let more = TimeBreakdown { total: 10, cpu: 30, run_queue: Some(u64::MAX), ..none };
        assert_eq!((more.bottleneck(true).1, more.waiting()), (1.0, 0));
    }
}
