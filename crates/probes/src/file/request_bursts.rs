//! How many requests a second a slow device sustains: a limit lets them through in bunches, of which a short measure counts one too many.

use std::ops::ControlFlow;

use kelvin_file::{Access, BlockOrder, BlockRequest, BlockRequests, Observer, PagePolicy, ReadOptions, Target};
use kelvin_harness::ProbeError;
use kelvin_stats::{PacedRate, ProgressPoint, paced_rate};
use kelvin_sys::clock::monotonic;

use super::test_files::{self, QueuedReads};

/// Requests a second below which a device is slow: it does fewer than a hundred in the shortest measure.
pub(super) const SLOW_DEVICE_IOPS: f64 = 5000.0;
/// Seconds for which a slow one is watched: six periods of a limit of the kernel's, a tenth of a second each.
const SLOW_DEVICE_SECONDS: f64 = 0.65;

/// What was done by when.
#[derive(Debug)]
struct CompletionTimes {
    begun: u64,
    bytes: u64,
    done: Vec<ProgressPoint>,
}

impl Observer for CompletionTimes {
    type Stamp = ();

    fn begin(&mut self) {}

    fn end(&mut self, (): (), request: BlockRequest, _: &[u8]) -> ControlFlow<()> {
        let at = (monotonic() - self.begun) as f64 / 1e9;
        self.bytes += request.bytes as u64;
        self.done.push(ProgressPoint { seconds: at, amount: self.done.len() as f64 + 1.0 });
        if at < SLOW_DEVICE_SECONDS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Keeps requests of a block each in flight at random places; how they come, and the bytes that were read.
pub(super) fn read_randomly(
    target: &Target,
    wide: &QueuedReads,
    block: usize,
    seed: u64,
) -> Result<(PacedRate, u64), ProbeError> {
    let order = BlockOrder::Random { seed };
    let how = ReadOptions { access: Access::Direct, block, order, pages: PagePolicy::Base };
    let mut reader = wide.engine.open(target, how).map_err(test_files::probe_error)?;
    let mut course = CompletionTimes { begun: monotonic(), bytes: 0, done: Vec::new() };
    reader
        .read(&mut BlockRequests::new(0..target.bytes(), block, order).endless(), &mut course)
        .map_err(test_files::probe_error)?;
    let paced = paced_rate(&course.done).ok_or_else(|| ProbeError::fail("no two requests were done"))?;
    Ok((paced, course.bytes))
}

/// How requests come, in words.
pub(super) fn describe_pacing(paced: &PacedRate) -> String {
    let slow = format!(
        "fewer than {SLOW_DEVICE_IOPS:.0} requests a second were done: they were watched for {SLOW_DEVICE_SECONDS} s"
    );
    match paced.bunches {
        Some([amount, seconds]) => {
            let each = seconds * 1e3;
            format!("{slow}, and come in bunches of {amount:.0} every {each:.0} ms: a limit lets them through")
        }
        None => format!("{slow}, and come evenly"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_described_with_size() {
        let says = |bunches| describe_pacing(&PacedRate { rate: 333.0, bunches });
        assert!(says(Some([33.3, 0.1])).ends_with("come in bunches of 33 every 100 ms: a limit lets them through"));
        assert!(says(None).ends_with("come evenly"));
    }
}
