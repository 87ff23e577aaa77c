//! The parameters of a file case, and the cases that other predictions rest on.

use kelvin_core::catalogue::file::{AccessOrder, CacheState, PAGES, ReadEngine};
use kelvin_core::{Case, NoPrediction};
use kelvin_file::cache::PageCacheState;
use kelvin_file::{BlockOrder, Engine};
use kelvin_harness::ProbeError;

/// A parameter without which nothing can be measured.
pub(super) fn required_for_run<T>(parameter: Option<T>, case: &Case) -> Result<T, ProbeError> {
    parameter.ok_or_else(|| ProbeError::fail(format!("there is nothing to measure for the case {case}")))
}

/// A parameter without which nothing can be predicted.
pub(super) fn required_for_prediction<T>(parameter: Option<T>, case: &Case) -> Result<T, NoPrediction> {
    parameter.ok_or_else(|| NoPrediction::new(format!("there is no formula for the case {case}")))
}

/// The page cache state of a case.
pub(super) fn cache_state(case: &Case) -> Result<PageCacheState, ProbeError> {
    Ok(match required_for_run(CacheState::of(case), case)? {
        CacheState::Cached => PageCacheState::Cached,
        CacheState::Uncached => PageCacheState::Uncached,
        CacheState::Direct => PageCacheState::Direct,
    })
}

/// The order of a case.
pub(super) fn block_order(case: &Case, seed: u64) -> Result<BlockOrder, ProbeError> {
    Ok(match required_for_run(AccessOrder::of(case), case)? {
        AccessOrder::Sequential => BlockOrder::Sequential,
        AccessOrder::Random => BlockOrder::Random { seed },
    })
}

/// The engine of a way of reading.
pub(super) const fn read_engine(way: ReadEngine) -> Engine {
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
pub(super) fn page_read_case(cache: CacheState, order: AccessOrder) -> Case {
    Case::new().with_word(cache).with_word(order)
}

/// Writing a byte into each of so many pages.
pub(super) fn page_write_case(pages: u64, order: AccessOrder) -> Case {
    Case::new().with_number(PAGES, pages).with_word(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_words_map_to_engines() {
        for &way in ReadEngine::ALL {
            let expected = match read_engine(way) {
                Engine::Uring { depth, .. } => format!("{}-{depth}", read_engine(way).name()),
                other => other.name().into(),
            };
            assert_eq!(way.name(), expected);
        }
    }
}
