//! The parameters of a file case, and the cases that other predictions rest on.

use kelvin_core::catalogue::file::{PAGES, ReadEngine};

use super::prelude::*;
use crate::cases::required;

/// The page cache state of a case.
pub(super) fn cache_state(case: &Case) -> ProbeResult<PageCacheState> {
    Ok(match required(CacheState::of(case), case)? {
        CacheState::Cached => PageCacheState::Cached,
        CacheState::Uncached => PageCacheState::Uncached,
        CacheState::Direct => PageCacheState::Direct,
    })
}

/// The order of a case.
pub(super) fn block_order(case: &Case, seed: u64) -> ProbeResult<BlockOrder> {
    Ok(match required(AccessOrder::of(case), case)? {
        AccessOrder::Sequential => BlockOrder::Sequential,
        AccessOrder::Random => BlockOrder::Random { seed },
    })
}

/// The engine of a way of reading.
pub(super) const fn read_engine(engine: ReadEngine) -> Engine {
    match engine {
        ReadEngine::Read => Engine::Read,
        ReadEngine::Pread => Engine::Pread,
        ReadEngine::Readv => Engine::Readv,
        ReadEngine::Fread => Engine::Stdio,
        ReadEngine::BufReader => Engine::BufReader,
        ReadEngine::Mmap => Engine::Mmap,
        ReadEngine::MmapPopulate => Engine::MmapPopulate,
        ReadEngine::Uring1 => Engine::Uring { depth: 1, registered: false },
        ReadEngine::Uring8 => Engine::Uring { depth: 8, registered: false },
        ReadEngine::Uring64 => Engine::Uring { depth: 64, registered: false },
        ReadEngine::UringFixed1 => Engine::Uring { depth: 1, registered: true },
        ReadEngine::UringFixed8 => Engine::Uring { depth: 8, registered: true },
        ReadEngine::UringFixed64 => Engine::Uring { depth: 64, registered: true },
    }
}

/// Reading a byte of each page.
pub(super) fn page_read_case(cache: CacheState, order: AccessOrder) -> Case {
    Case::new().with_word(cache).with_word(order)
}

/// Writing a byte into each of this many pages.
pub(super) fn page_write_case(pages: u64, order: AccessOrder) -> Case {
    Case::new().with_number(PAGES, pages).with_word(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_words_map_to_engines() {
        for &engine in ReadEngine::ALL {
            let expected = match read_engine(engine) {
                Engine::Uring { depth, .. } => format!("{}-{depth}", read_engine(engine).name()),
                other => other.name().into(),
            };
            assert_eq!(engine.name(), expected);
        }
    }
}
