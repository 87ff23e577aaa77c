//! How a file is read with regard to the page cache.

/// Whether the page cache takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache.
    Buffered,
    /// Past it (O_DIRECT).
    Direct,
}

/// How much of a file is to be in memory when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCacheState {
    /// As it is found.
    AsFound,
    /// All of it: it is read once before.
    Cached,
    /// Nothing: it is dropped before.
    Uncached,
    /// It does not matter, as it is read past the page cache. Nothing of it is in memory either: the kernel would have to look
    /// there first.
    Direct,
}

impl PageCacheState {
    /// How the file is opened for it.
    pub fn access(self) -> Access {
        if self == Self::Direct { Access::Direct } else { Access::Buffered }
    }

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::AsFound => "as-found",
            Self::Cached => "cached",
            Self::Uncached => "uncached",
            Self::Direct => "direct",
        }
    }
}
