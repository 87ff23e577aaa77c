//! The parameters of a file case, and the cases that other predictions rest on.

use kelvin_catalogue::file::{AccessOrder, CacheState, PAGES, ReadEngine};
use kelvin_file::cache::State;
use kelvin_file::{Engine, Order};
use kelvin_harness::Stop;
use kelvin_model::{Case, NoPrediction};

/// A parameter without which nothing can be measured.
pub(super) fn known<T>(parameter: Option<T>, case: &Case) -> Result<T, Stop> {
    parameter.ok_or_else(|| Stop::fail(format!("there is nothing to measure for the case {case}")))
}

/// A parameter without which nothing can be predicted.
pub(super) fn predictable<T>(parameter: Option<T>, case: &Case) -> Result<T, NoPrediction> {
    parameter.ok_or_else(|| NoPrediction::because(format!("there is no formula for the case {case}")))
}

/// The page cache state of a case.
pub(super) fn state(case: &Case) -> Result<State, Stop> {
    Ok(match known(CacheState::of(case), case)? {
        CacheState::Cached => State::Cached,
        CacheState::Uncached => State::Uncached,
        CacheState::Direct => State::Direct,
    })
}

/// The order of a case.
pub(super) fn order(case: &Case, seed: u64) -> Result<Order, Stop> {
    Ok(match known(AccessOrder::of(case), case)? {
        AccessOrder::Sequential => Order::Sequential,
        AccessOrder::Random => Order::Random { seed },
    })
}

/// The engine of a way of reading.
pub(super) const fn engine(way: ReadEngine) -> Engine {
    const fn ring(depth: u32, registered: bool) -> Engine {
        Engine::Uring { depth, registered }
    }
    match way {
        ReadEngine::Read => Engine::Read,
        ReadEngine::Pread => Engine::Pread,
        ReadEngine::Readv => Engine::Readv,
        ReadEngine::Fread => Engine::Stdio,
        ReadEngine::BufReader => Engine::BufReader,
        ReadEngine::Mmap => Engine::Mmap,
        ReadEngine::MmapPopulate => Engine::MmapPopulate,
        ReadEngine::Uring1 => ring(1, false),
        ReadEngine::Uring8 => ring(8, false),
        ReadEngine::Uring64 => ring(64, false),
        ReadEngine::UringFixed1 => ring(1, true),
        ReadEngine::UringFixed8 => ring(8, true),
        ReadEngine::UringFixed64 => ring(64, true),
    }
}

/// Reading a byte of each page.
pub(super) fn pages_read(cache: CacheState, order: AccessOrder) -> Case {
    Case::new().at(cache).at(order)
}

/// Writing a byte into each of so many pages.
pub(super) fn pages_written(pages: u64, order: AccessOrder) -> Case {
    Case::new().with(PAGES, pages).at(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_which_way_they_mean() {
        for &way in ReadEngine::ALL {
            let expected = match engine(way) {
                Engine::Uring { depth, .. } => format!("{}-{depth}", engine(way).name()),
                other => other.name().into(),
            };
            assert_eq!(way.name(), expected);
        }
    }
}
