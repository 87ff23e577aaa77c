//! What limited a copy: the CPU, other work on it, the source's device, the target's, or the flush.

/// What the time of a copy was spent on, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// All of it, flushing included.
    pub all: u64,
    /// CPU time of the process.
    pub cpu: u64,
    /// Ready to run, and without a CPU; `None` where the kernel does not count it.
    pub ready: Option<u64>,
    /// Flushing at the end.
    pub flush: u64,
    /// In calls that read the source, where these are apart from those that write, and were timed.
    pub reading: Option<u64>,
    /// In calls that write the target, likewise.
    pub writing: Option<u64>,
}

/// What limited a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
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
pub const LIMITING: f64 = 0.6;

impl Spent {
    /// A part as a share of the whole time, 0 to 1.
    pub fn share(&self, part: u64) -> f64 {
        (part as f64 / self.all.max(1) as f64).min(1.0)
    }

    /// Nanoseconds that it neither ran, nor flushed, nor is known to have waited for a CPU: it waited for a device, or for who serves a
    /// file.
    pub fn waited(&self) -> u64 {
        self.all.saturating_sub(self.cpu).saturating_sub(self.ready.unwrap_or(0)).saturating_sub(self.flush)
    }

    /// What took most of the time, and its share. `is_cached` says whether the source was in memory before.
    pub fn limit(&self, is_cached: bool) -> (Limit, f64) {
        let waited_for = match (self.reading, self.writing) {
            (Some(reading), Some(writing)) if writing > reading => Limit::Target,
            (Some(_), Some(_)) => Limit::Source,
            _ if is_cached => Limit::Target,
            _ => Limit::Source,
        };
        // The CPU time of a flush is little, and counts twice.
        let parts = [
            (Limit::Cpu, self.cpu),
            (Limit::OtherWork, self.ready.unwrap_or(0)),
            (Limit::Flush, self.flush),
            (waited_for, self.waited()),
        ];
        let most = parts.into_iter().fold((Limit::Cpu, 0), |most, part| if part.1 > most.1 { part } else { most });
        (most.0, self.share(most.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Spent =
        Spent { all: 1000, cpu: 950, ready: Some(20), flush: 0, reading: Some(300), writing: Some(690) };

    #[test]
    fn what_took_most_of_the_time_is_the_limit() {
        assert_eq!(BUSY.limit(true), (Limit::Cpu, 0.95));
        assert_eq!(Spent { cpu: 200, flush: 700, ..BUSY }.limit(true), (Limit::Flush, 0.7));
        assert_eq!(Spent { cpu: 300, ready: Some(650), ..BUSY }.limit(true), (Limit::OtherWork, 0.65));
        assert_eq!(
            Spent { cpu: 200, reading: Some(800), writing: Some(190), ..BUSY }.limit(false),
            (Limit::Source, 0.78)
        );
        assert_eq!(
            Spent { cpu: 200, reading: Some(100), writing: Some(890), ..BUSY }.limit(false),
            (Limit::Target, 0.78)
        );
    }

    #[test]
    fn where_calls_do_both_it_waits_for_the_source_unless_that_is_in_memory() {
        let together = Spent { cpu: 100, reading: None, writing: None, ..BUSY };
        assert_eq!(together.limit(false).0, Limit::Source);
        assert_eq!(together.limit(true).0, Limit::Target);
    }

    #[test]
    fn no_time_has_no_impossible_share() {
        let none = Spent::default();
        assert_eq!((none.limit(true), none.waited()), ((Limit::Cpu, 0.0), 0));
        let more = Spent { all: 10, cpu: 30, ready: Some(u64::MAX), ..none };
        assert_eq!((more.limit(true).1, more.waited()), (1.0, 0));
    }
}
