//! The ways of reading blocks of a file into memory, by name.

use std::fs::File;
use std::io::BufReader;

use kelvin_sys::mapping::advise_access;
use kelvin_sys::stdio::CFile;
use kelvin_sys::uring::IoDirection;

use crate::block_requests::{BlockOrder, BlockRequests};
use crate::engines::mmap::{MmapEngine, MmapOptions};
use crate::engines::stream::StreamEngine;
use crate::engines::syscalls::{IoCall, SyscallEngine};
use crate::engines::uring::UringEngine;
use crate::engines::{BlockEngine, BlockFile};
use crate::observer::Observer;
use crate::reader_threads::IoWorker;
use crate::target::{Access, Target};
use crate::{Error, Result};
use kelvin_sys::memory::PagePolicy;

/// A way of reading blocks of a file into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    /// read(2), with lseek(2) before it where the order asks for it.
    Read,
    /// pread(2).
    Pread,
    /// readv(2) into four parts of the buffer, with lseek(2) where the order asks for it.
    Readv,
    /// fread(3) of the C library, with its usual buffer.
    Stdio,
    /// Rust's `BufReader`, with its usual buffer.
    BufReader,
    /// A mapping, copied out of by memcpy(3).
    Mmap,
    /// The same, its pages mapped ahead 2 MiB at a time (MADV_POPULATE_READ).
    MmapPopulate,
    /// A mapping, read in place: nothing is read unless the observer looks, and so it is in no list. Its pages are mapped as
    /// they are touched, which was seen to be faster than mapping them ahead.
    MmapInPlace,
    /// io_uring, at this queue depth.
    Uring {
        /// Queue depth.
        depth: u32,
        /// Whether file and buffers are registered beforehand.
        registered: bool,
    },
}

impl Engine {
    /// Every one that reads blocks into its own memory, io_uring at depth 1.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Pread,
        Self::Readv,
        Self::Stdio,
        Self::BufReader,
        Self::Mmap,
        Self::MmapPopulate,
        Self::Uring { depth: 1, registered: false },
        Self::Uring { depth: 1, registered: true },
    ];

    /// Its name on the command line and in reports, without the depth.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Pread => "pread",
            Self::Readv => "readv",
            Self::Stdio => "fread",
            Self::BufReader => "bufreader",
            Self::Mmap => "mmap",
            Self::MmapPopulate => "mmap-populate",
            Self::MmapInPlace => "mmap-in-place",
            Self::Uring { registered: false, .. } => "io_uring",
            Self::Uring { registered: true, .. } => "io_uring-fixed",
        }
    }

    /// Whether it can read past the page cache.
    pub fn can_be_direct(self) -> bool {
        matches!(self, Self::Read | Self::Pread | Self::Readv | Self::Uring { .. })
    }

    /// Opens a file to be read in this way. The order is announced to the kernel, which reads ahead accordingly.
    ///
    /// # Errors
    /// A file that cannot be opened so.
    pub fn open(self, target: &Target, how: ReadOptions) -> Result<Reader> {
        let ReadOptions { access, block, order, pages } = how;
        if access == Access::Direct && !self.can_be_direct() {
            return Err(Error::setting("engine", format!("{self} reads through the page cache, and cannot bypass it")));
        }
        if block == 0 {
            return Err(Error::setting("block", "must be at least one byte"));
        }
        let file = target.open(access)?;
        if access == Access::Buffered {
            advise_access(&file, order == BlockOrder::Sequential)
                .map_err(|error| Error::call("advise on", target.path(), error))?;
        }
        let target = target.clone();
        Ok(Reader(match self {
            Self::Stdio => {
                let stream = CFile::new(file).map_err(|error| target.read_error(0, block, error))?;
                EngineReader::Stdio(StreamEngine::new(target, stream, block))
            }
            Self::BufReader => EngineReader::BufReader(StreamEngine::new(target, BufReader::new(file), block)),
            Self::Mmap | Self::MmapPopulate | Self::MmapInPlace => {
                let buffer = if self == Self::MmapInPlace { 0 } else { block };
                let reading = MmapOptions { populate: self == Self::MmapPopulate, buffer, order };
                EngineReader::Mmap(MmapEngine::new(target, &file, reading)?)
            }
            Self::Read | Self::Pread | Self::Readv | Self::Uring { .. } => {
                let file = BlockFile { target, file, block, access, pages };
                EngineReader::Block(match self {
                    Self::Read => SyscallEngine::open(IoCall::Read, file)?,
                    Self::Readv => SyscallEngine::open(IoCall::Readv, file)?,
                    Self::Uring { depth, registered } => {
                        UringEngine::open(IoDirection::Read, (depth, registered), file)?
                    }
                    _ => SyscallEngine::open(IoCall::Pread, file)?,
                })
            }
        }))
    }
}

/// Shared by the ways of reading and of writing: names, and the depth of io_uring.
macro_rules! named {
    ($engine:ident, $doing:literal) => {
        impl $engine {
            /// The same at this queue depth.
            ///
            /// # Errors
            /// A depth of more than one for a way that waits for each request.
            pub fn with_depth(self, depth: u32) -> Result<Self> {
                match self {
                    Self::Uring { registered, .. } => Ok(Self::Uring { depth, registered }),
                    other if depth == 1 => Ok(other),
                    other => Err(Error::depth_unsupported(other.name(), depth)),
                }
            }

            /// Its queue depth at most.
            pub fn depth(self) -> u32 {
                match self {
                    Self::Uring { depth, .. } => depth,
                    _ => 1,
                }
            }
        }

        impl std::fmt::Display for $engine {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    Self::Uring { depth, .. } if *depth != 1 => write!(out, "{} depth {depth}", self.name()),
                    _ => out.write_str(self.name()),
                }
            }
        }

        impl std::str::FromStr for $engine {
            type Err = String;

            fn from_str(name: &str) -> std::result::Result<Self, String> {
                Self::ALL.into_iter().find(|engine| engine.name() == name).ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|engine| engine.name()).collect();
                    format!("no such way of {}; there is: {}", $doing, names.join(", "))
                })
            }
        }
    };
}

pub(crate) use named;

named!(Engine, "reading");

/// How a file is opened to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Through the page cache or past it.
    pub access: Access,
    /// Bytes of a block at most.
    pub block: usize,
    /// The order in which blocks will be requested.
    pub order: BlockOrder,
    /// The pages of the buffer that blocks are read into by its own call or ring; other ways have buffers of their own.
    pub pages: PagePolicy,
}

/// A file that is open to be read in one way.
#[derive(Debug)]
pub struct Reader(EngineReader);

#[derive(Debug)]
enum EngineReader {
    Block(BlockEngine),
    Stdio(StreamEngine<CFile>),
    BufReader(StreamEngine<BufReader<File>>),
    Mmap(MmapEngine),
}

impl Reader {
    /// Makes requests until there are no more or the observer has enough.
    ///
    /// # Errors
    /// A request that failed, or read less than requested.
    #[inline]
    pub fn read<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Result<()> {
        match &mut self.0 {
            EngineReader::Block(blocks) => blocks.run_requests(requests, observer, |_, _| {}),
            EngineReader::Stdio(streamed) => streamed.read(requests, observer),
            EngineReader::BufReader(buffered) => buffered.read(requests, observer),
            EngineReader::Mmap(mapped) => mapped.read(requests, observer),
        }
    }

    /// Unmaps a mapping's pages, so that it meets them as when it was opened; other ways keep no such state.
    ///
    /// # Errors
    /// Those of madvise.
    pub fn unmap_pages(&mut self) -> Result<()> {
        match &mut self.0 {
            EngineReader::Mmap(mapped) => mapped.unmap_pages(),
            EngineReader::Block(_) | EngineReader::Stdio(_) | EngineReader::BufReader(_) => Ok(()),
        }
    }

    /// What was done that its name does not say.
    pub fn notes(&self) -> Vec<String> {
        match &self.0 {
            EngineReader::Block(blocks) => blocks.notes(),
            _ => Vec::new(),
        }
    }

    /// The mean queue depth, counted at completions; `None` where it is always one.
    pub fn achieved_depth(&self) -> Option<f64> {
        match &self.0 {
            EngineReader::Block(blocks) => blocks.achieved_depth(),
            _ => None,
        }
    }
}

impl IoWorker for Reader {
    fn run_requests<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Result<()> {
        self.read(requests, observer)
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        self.notes()
    }

    fn achieved_depth(&self) -> Option<f64> {
        self.achieved_depth()
    }
}
