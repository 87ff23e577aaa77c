//! How many requests a second a slow device sustains: a limit lets them through in bunches, of which a short measure counts one too many.

use std::ops::ControlFlow;

use kelvin_file::{Access, How, Observer, Order, Pages, Request, Requests, Target};
use kelvin_harness::Stop;
use kelvin_stats::{Done, Paced, paced};
use kelvin_sys::clock::monotonic;

use super::data::{self, Wide};

/// Requests a second below which a device is slow: it does fewer than a hundred in the shortest measure.
pub(super) const SLOW: f64 = 5000.0;
/// Seconds for which a slow one is watched: six periods of a limit of the kernel's, a tenth of a second each.
const WATCHED: f64 = 0.65;

/// What was done by when.
#[derive(Debug)]
struct Course {
    begun: u64,
    bytes: u64,
    done: Vec<Done>,
}

impl Observer for Course {
    type Stamp = ();

    fn begin(&mut self) {}

    fn end(&mut self, (): (), request: Request, _: &[u8]) -> ControlFlow<()> {
        let at = (monotonic() - self.begun) as f64 / 1e9;
        self.bytes += request.bytes as u64;
        self.done.push(Done { at, amount: self.done.len() as f64 + 1.0 });
        if at < WATCHED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Keeps requests of a block each in flight at random places; how they come, and the bytes that were read.
pub(super) fn requests(target: &Target, wide: &Wide, block: usize, seed: u64) -> Result<(Paced, u64), Stop> {
    let order = Order::Random { seed };
    let how = How { access: Access::Direct, block, order, pages: Pages::Base };
    let mut reader = wide.engine.open(target, how).map_err(data::stopped)?;
    let mut course = Course { begun: monotonic(), bytes: 0, done: Vec::new() };
    reader.read(&mut Requests::new(0..target.bytes(), block, order).endless(), &mut course).map_err(data::stopped)?;
    let paced = paced(&course.done).ok_or_else(|| Stop::fail("no two requests were done"))?;
    Ok((paced, course.bytes))
}

/// How requests come, in words.
pub(super) fn words(paced: &Paced) -> String {
    let slow = format!("fewer than {SLOW:.0} requests a second were done: they were watched for {WATCHED} s");
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
    fn bunches_are_named_with_their_size() {
        let says = |bunches| words(&Paced { rate: 333.0, bunches });
        assert!(says(Some([33.3, 0.1])).ends_with("come in bunches of 33 every 100 ms: a limit lets them through"));
        assert!(says(None).ends_with("come evenly"));
    }
}
