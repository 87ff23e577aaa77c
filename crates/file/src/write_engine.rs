//! The ways of writing blocks of memory to a file, by name, and their content.

use std::str::FromStr;

use kelvin_sys::clock::monotonic;
use kelvin_sys::memory::PagePolicy;
use kelvin_sys::uring::IoDirection;

use crate::block_requests::{BlockRequest, BlockRequests};
use crate::engine::named;
use crate::engines::syscalls::{IoCall, SyscallEngine};
use crate::engines::uring::UringEngine;
use crate::engines::{BlockEngine, BlockFile};
use crate::observer::Observer;
use crate::random_data::RandomData;
use crate::reader_threads::IoWorker;
use crate::target::{Access, Target};
use crate::{Error, Result};

/// A way of writing blocks of memory to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEngine {
    /// write(2), with lseek(2) before it where a thread's part begins.
    Write,
    /// pwrite(2).
    Pwrite,
    /// io_uring, at this queue depth.
    Uring {
        /// Queue depth.
        depth: u32,
        /// Whether file and buffers are registered beforehand.
        registered: bool,
    },
}

impl WriteEngine {
    /// Every one, io_uring at depth 1.
    pub const ALL: [Self; 4] = [
        Self::Write,
        Self::Pwrite,
        Self::Uring { depth: 1, registered: false },
        Self::Uring { depth: 1, registered: true },
    ];

    /// Its name on the command line and in reports, without the depth.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Pwrite => "pwrite",
            Self::Uring { registered: false, .. } => "io_uring",
            Self::Uring { registered: true, .. } => "io_uring-fixed",
        }
    }
}

named!(WriteEngine, "writing");

/// When data counts as written. It is part of what a figure of writing is: each is another quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// When the kernel has it in memory; a loss of power may lose it.
    None,
    /// When all of it was flushed to the device, once at the end (fsync).
    Fsync,
    /// When the device reports it durable, block by block (O_DSYNC).
    Dsync,
    /// When the device has accepted it, block by block, past the page cache (O_DIRECT). The device's own cache is not flushed.
    Direct,
}

impl SyncMode {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::None, Self::Fsync, Self::Dsync, Self::Direct];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fsync => "fsync",
            Self::Dsync => "dsync",
            Self::Direct => "direct",
        }
    }

    pub(crate) fn access(self) -> Access {
        if self == Self::Direct { Access::Direct } else { Access::Buffered }
    }

    /// Flags of open(2) beside that of direct I/O.
    pub(crate) fn flags(self) -> i32 {
        if self == Self::Dsync { kelvin_sys::direct_io::O_DSYNC } else { 0 }
    }
}

impl FromStr for SyncMode {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let wrong = || "the sync policy is one of: none, fsync, dsync, direct".to_owned();
        Self::ALL.into_iter().find(|sync| sync.name() == name).ok_or_else(wrong)
    }
}

/// The content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Numbers that neither compress nor repeat: the same file for the same seed, in whatever blocks it is written.
    Noise {
        /// Chooses them.
        seed: u64,
    },
    /// One byte repeated: a drive or a file system that compresses need hardly write it.
    Byte(u8),
}

impl Pattern {
    /// Fills the buffer of a request, before its time begins. It holds the byte of a [`Pattern::Byte`] from the beginning.
    #[inline]
    fn fill_block(self, request: BlockRequest, buffer: &mut [u8]) {
        let (block, beyond) = buffer.split_at_mut(request.bytes);
        if let Self::Noise { seed } = self {
            RandomData::fill_at(seed, request.offset, block);
        }
        // Only the last block of a file is ever padded, and no other one is written after it from the same buffer.
        beyond.fill(0);
    }

    /// The cost of making a block of it, in nanoseconds: that much of a request's time is not the file's, though it is not part
    /// of its latency.
    pub fn fill_cost(self, block: usize) -> f64 {
        const REPEATS: usize = 9;
        /// Fewest bytes of a repetition, so that the clock is no part of the figure.
        const MIN_COST_BYTES: usize = 1 << 20;
        let mut buffer = vec![0; block];
        let request = BlockRequest { offset: 0, bytes: block };
        let blocks = MIN_COST_BYTES.div_ceil(block.max(1));
        let costs: Vec<f64> = (0..REPEATS)
            .map(|_| {
                let begun = monotonic();
                for _ in 0..blocks {
                    self.fill_block(request, std::hint::black_box(&mut buffer));
                }
                (monotonic() - begun) as f64 / blocks as f64
            })
            .collect();
        kelvin_stats::median(&costs)
    }
}

impl FromStr for Pattern {
    type Err = String;

    /// `noise`, with seed 0, or a byte.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        const PATTERN_SYNTAX: &str = "a pattern is `noise`, or a byte from 0 to 255 or 0x00 to 0xff";
        if text == "noise" {
            return Ok(Self::Noise { seed: 0 });
        }
        let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
        // A sign would be taken for a part of the number.
        let number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        number
            .then(|| u8::from_str_radix(digits, radix).ok())
            .flatten()
            .map(Self::Byte)
            .ok_or_else(|| PATTERN_SYNTAX.into())
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) engine: WriteEngine,
    pub(crate) sync: SyncMode,
    pub(crate) block: usize,
    pub(crate) pattern: Pattern,
    pub(crate) pages: PagePolicy,
}

/// A file that is open to be written in one way.
#[derive(Debug)]
pub(crate) struct Writer {
    target: Target,
    pattern: Pattern,
    engine: BlockEngine,
}

impl Writer {
    /// Opens a file to be written.
    pub(crate) fn open(target: &Target, how: WriteOptions) -> Result<Self> {
        let WriteOptions { engine, sync, block, pattern, pages } = how;
        let access = sync.access();
        let file = target.open_to_write(access, sync.flags())?;
        let open = BlockFile { target: target.clone(), file, block, access, pages };
        let mut engine = match engine {
            WriteEngine::Write => SyscallEngine::open(IoCall::Write, open)?,
            WriteEngine::Pwrite => SyscallEngine::open(IoCall::Pwrite, open)?,
            WriteEngine::Uring { depth, registered } => {
                UringEngine::open(IoDirection::Write, (depth, registered), open)?
            }
        };
        if let Pattern::Byte(byte) = pattern {
            engine.fill_buffers(byte);
        }
        Ok(Self { target: target.clone(), pattern, engine })
    }
}

impl IoWorker for Writer {
    fn run_requests<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Result<()> {
        let pattern = self.pattern;
        self.engine.run_requests(requests, observer, |request, buffer| pattern.fill_block(request, buffer))
    }

    fn finish(&self) -> Result<()> {
        // That of a duplicate tells what that of the file would.
        let closed = self.engine.file().try_clone().and_then(kelvin_sys::fs::close);
        closed.map_err(|error| Error::call("close", self.target.path(), error))
    }

    fn notes(&self) -> Vec<String> {
        self.engine.notes()
    }

    fn achieved_depth(&self) -> Option<f64> {
        self.engine.achieved_depth()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_names_round_trip() {
        for engine in WriteEngine::ALL {
            assert_eq!(engine.name().parse(), Ok(engine));
        }
        for sync in SyncMode::ALL {
            assert_eq!(sync.name().parse(), Ok(sync));
        }
        assert!("mmap".parse::<WriteEngine>().unwrap_err().contains("pwrite"));
        assert!("later".parse::<SyncMode>().unwrap_err().contains("dsync"));
        assert!(WriteEngine::Pwrite.with_depth(2).is_err());
        let deep = WriteEngine::Uring { depth: 1, registered: true }.with_depth(8).unwrap();
        assert_eq!((deep.to_string().as_str(), deep.depth()), ("io_uring-fixed depth 8", 8));
    }

    #[test]
    fn pattern_parses_noise_or_byte() {
        for (text, expected) in [("0", 0), ("255", 255), ("0x00", 0), ("0xA5", 0xa5), ("007", 7)] {
            assert_eq!(text.parse(), Ok(Pattern::Byte(expected)), "{text}");
        }
        assert_eq!("noise".parse(), Ok(Pattern::Noise { seed: 0 }));
        for wrong in ["", "256", "-1", "+1", "0x", "0x+1", "0x100", "a5", "zero", "1.0"] {
            assert!(wrong.parse::<Pattern>().unwrap_err().contains("0x00 to 0xff"), "{wrong}");
        }
    }

    #[test]
    fn pattern_fill_has_cost() {
        for pattern in [Pattern::Noise { seed: 1 }, Pattern::Byte(1)] {
            assert!(pattern.fill_cost(65536) >= 0.0, "{pattern:?}");
        }
    }
}
