//! The ways of reading blocks of a file into memory, by name.

pub(crate) mod mmap;
pub(crate) mod stream;
pub(crate) mod syscalls;
pub(crate) mod uring;

use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;

use kelvin_sys::mapping::advise_access;
use kelvin_sys::memory::PagePolicy;
use kelvin_sys::stdio::CFile;
use kelvin_sys::uring::IoDirection;

use self::mmap::MmapEngine;
use self::stream::StreamEngine;
use self::syscalls::{IoCall, SyscallEngine};
use self::uring::UringEngine;
use crate::access::Access;
use crate::block_requests::{BlockOrder, BlockRequest, BlockRequests};
use crate::observer::Observer;
use crate::target::Target;
use crate::{Error, Result};

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
    /// Like `Mmap`, its pages mapped ahead 2 MiB at a time (MADV_POPULATE_READ).
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
    pub fn open(self, target: &Target, options: ReadOptions) -> Result<Reader> {
        let ReadOptions { access, block, order, pages } = options;
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
        if self == Self::Stdio {
            let stream = CFile::new(file).map_err(|error| target.read_error(0, block, error))?;
            return Ok(Reader(BlockEngine::Stdio(StreamEngine::new(target, stream, block))));
        }
        let file = BlockFile { target, file, block, access, pages };
        Ok(Reader(match self {
            Self::Read => SyscallEngine::open(IoCall::Read, file)?,
            Self::Readv => SyscallEngine::open(IoCall::Readv, file)?,
            Self::Uring { depth, registered } => UringEngine::open(IoDirection::Read, (depth, registered), file)?,
            Self::BufReader => BlockEngine::BufReader(StreamEngine::new(file.target, BufReader::new(file.file), block)),
            Self::Mmap | Self::MmapPopulate | Self::MmapInPlace => {
                let block = if self == Self::MmapInPlace { 0 } else { block };
                let file = BlockFile { block, ..file };
                BlockEngine::Mmap(MmapEngine::new(file, order, self == Self::MmapPopulate)?)
            }
            Self::Pread | Self::Stdio => SyscallEngine::open(IoCall::Pread, file)?,
        }))
    }
}

/// Shared by the ways of reading and of writing: names, and the depth of io_uring.
macro_rules! named {
    ($engine:ident, $doing:literal) => {
        impl $engine {
            /// It at this queue depth.
            ///
            /// # Errors
            /// A depth of more than one for a way that waits for each request.
            pub fn with_depth(self, depth: u32) -> Result<Self> {
                match self {
                    Self::Uring { registered, .. } => Ok(Self::Uring { depth, registered }),
                    other if depth == 1 => Ok(other),
                    other => {
                        let name = other.name();
                        let why = format!("{name} has a queue depth of 1, not {depth}: only io_uring goes deeper");
                        Err(Error::setting("depth", why))
                    }
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

impl ReadOptions {
    /// Through the page cache in blocks of this many bytes from the beginning to the end, into base pages.
    pub fn sequential(block: usize) -> Self {
        Self { access: Access::Buffered, block, order: BlockOrder::Sequential, pages: PagePolicy::Base }
    }
}

/// A file that is open to be read or written in blocks of one size.
#[derive(Debug)]
pub(crate) struct BlockFile {
    pub(crate) target: Target,
    pub(crate) file: File,
    pub(crate) block: usize,
    pub(crate) access: Access,
    /// The pages that are asked for, of the buffers.
    pub(crate) pages: PagePolicy,
}

/// One thread's source of requests: a reader or a writer.
pub(crate) trait IoWorker {
    /// Makes requests until there are no more or the observer has enough, and returns which.
    fn run_requests<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Flow;

    /// Its engine.
    fn engine(&self) -> &BlockEngine;

    /// Nothing more is to be done: that all was taken of what was written, if anything was.
    ///
    /// # Errors
    /// Those of close.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// Whether the observer had enough, or else there were no more requests.
pub(crate) type Flow = Result<ControlFlow<()>>;

/// A file that is open to be moved block by block to or from buffers of its own, in one way.
pub(crate) enum BlockEngine {
    Syscall(SyscallEngine),
    Uring(Box<UringEngine>),
    Stdio(StreamEngine<CFile>),
    BufReader(StreamEngine<BufReader<File>>),
    Mmap(MmapEngine),
}

impl BlockEngine {
    /// Makes requests until there are no more or the observer has enough, and returns which. `prepare` is given the buffer of each
    /// before its time begins, where that is to be written.
    #[inline]
    pub(crate) fn run_requests<O: Observer>(
        &mut self,
        requests: &mut BlockRequests,
        observer: &mut O,
        prepare: impl FnMut(BlockRequest, &mut [u8]),
    ) -> Flow {
        match self {
            Self::Syscall(engine) => engine.run_requests(requests, observer, prepare),
            Self::Uring(engine) => engine.run_requests(requests, observer, prepare),
            Self::Stdio(engine) => engine.read(requests, observer),
            Self::BufReader(engine) => engine.read(requests, observer),
            Self::Mmap(engine) => engine.read(requests, observer),
        }
    }

    /// What was done that the settings do not state.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            Self::Syscall(engine) => engine.notes(),
            Self::Uring(engine) => engine.notes(),
            _ => Vec::new(),
        }
    }

    /// The mean queue depth, counted at completions; `None` where it is always one.
    pub(crate) fn achieved_depth(&self) -> Option<f64> {
        match self {
            Self::Uring(engine) => engine.achieved_depth(),
            _ => None,
        }
    }
}

/// A file that is open to be read in one way.
pub struct Reader(BlockEngine);

impl Reader {
    /// Makes requests until there are no more or the observer has enough.
    ///
    /// # Errors
    /// A request that failed, or read less than requested.
    #[inline]
    pub fn read<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Result<()> {
        self.run_requests(requests, observer).map(drop)
    }

    /// Unmaps a mapping's pages, so that it meets them as when it was opened; other ways keep no such state.
    ///
    /// # Errors
    /// Those of madvise.
    pub fn unmap_pages(&mut self) -> Result<()> {
        if let BlockEngine::Mmap(engine) = &mut self.0 { engine.unmap_pages() } else { Ok(()) }
    }

    /// What was done that its name does not state.
    pub fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    /// The mean queue depth, counted at completions; `None` where it is always one.
    pub fn achieved_depth(&self) -> Option<f64> {
        self.0.achieved_depth()
    }
}

impl IoWorker for Reader {
    #[inline]
    fn run_requests<O: Observer>(&mut self, requests: &mut BlockRequests, observer: &mut O) -> Flow {
        self.0.run_requests(requests, observer, |_, _| {})
    }

    fn engine(&self) -> &BlockEngine {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::ops::ControlFlow;

    use crate::digest::DigestObserver;
    use crate::{
        Access, BlockOrder, BlockRequest, BlockRequests, Engine, Error, IoTally, Observer, PagePolicy, ReadOptions,
        Target,
    };

    /// A file whose bytes are their own offsets.
    fn file(bytes: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        file.write_all(&content).unwrap();
        file.as_file().sync_all().unwrap();
        (file, content)
    }

    fn engines() -> Vec<Engine> {
        let mut engines = Engine::ALL.to_vec();
        engines.push(Engine::MmapInPlace);
        engines.extend([3, 32].map(|depth| Engine::Uring { depth, registered: depth == 3 }));
        engines
    }

    /// Reassembles what it observes.
    struct CollectingObserver {
        content: Vec<u8>,
        remaining: usize,
    }

    impl Observer for CollectingObserver {
        type Stamp = u8;

        fn begin(&mut self) -> u8 {
            7
        }

        fn end(&mut self, stamp: u8, request: BlockRequest, data: &[u8]) -> ControlFlow<()> {
            assert_eq!((stamp, data.len()), (7, request.bytes));
            self.content[request.offset as usize..][..data.len()].copy_from_slice(data);
            // Requests in flight when there is enough complete all the same.
            self.remaining = self.remaining.saturating_sub(1);
            if self.remaining == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// Reads by every way available here; prints which are not.
    fn for_all_engines(target: &Target, access: Access, block: usize, mut check: impl FnMut(Engine, crate::Reader)) {
        for engine in engines().into_iter().filter(|engine| access == Access::Buffered || engine.can_be_direct()) {
            match engine
                .open(target, ReadOptions { access, block, order: BlockOrder::Sequential, pages: PagePolicy::Base })
            {
                Ok(reader) => check(engine, reader),
                Err(error) if error.is_unsupported() => {
                    kelvin_testing::MissingRequirement::from_message(error).report_skip(format!("reading by {engine}"))
                }
                Err(error) => panic!("{engine}: {error}"),
            }
        }
    }

    #[test]
    fn all_engines_read_all_bytes() {
        for (bytes, block) in [(0, 4096), (1, 1), (1000, 1), (100_000, 4096), (100_001, 777), (5_000_000, 1 << 20)] {
            let (file, content) = file(bytes);
            let target = Target::find(file.path()).unwrap();
            for order in [BlockOrder::Sequential, BlockOrder::Random { seed: 5 }] {
                for_all_engines(&target, Access::Buffered, block, |engine, mut reader| {
                    let mut observer = CollectingObserver { content: vec![0; bytes], remaining: usize::MAX };
                    let mut requests = BlockRequests::new(0..bytes as u64, block, order);
                    reader.read(&mut requests, &mut observer).unwrap();
                    assert!(observer.content == content, "{engine} {block} {order:?}");
                });
            }
        }
    }

    #[test]
    fn direct_engines_read_unaligned_end() {
        let (file, content) = file(1_000_123);
        let target = Target::find(file.path()).unwrap();
        for_all_engines(&target, Access::Direct, 16384, |engine, mut reader| {
            for order in [BlockOrder::Sequential, BlockOrder::Random { seed: 9 }] {
                let mut observer = CollectingObserver { content: vec![0; content.len()], remaining: usize::MAX };
                reader.read(&mut BlockRequests::new(0..content.len() as u64, 16384, order), &mut observer).unwrap();
                assert!(observer.content == content, "{engine} {order:?}");
            }
        });
    }

    #[test]
    fn range_is_read_for_several_passes() {
        let (file, content) = file(300_000);
        let target = Target::find(file.path()).unwrap();
        for_all_engines(&target, Access::Buffered, 10_000, |engine, mut reader| {
            let mut requests = BlockRequests::new(20_000..250_000, 10_000, BlockOrder::Sequential).passes(3);
            let mut observer = DigestObserver::<IoTally>::default();
            reader.read(&mut requests, &mut observer).unwrap();
            assert_eq!(observer.inner, IoTally { bytes: 3 * 230_000, requests: 69 }, "{engine}");
            let mut expected = crate::Digest::default();
            expected.add(20_000, &content[20_000..250_000]);
            assert_eq!(observer.digest, expected, "{engine}");
        });
    }

    #[test]
    fn stopped_reader_can_resume() {
        let (file, content) = file(1_000_000);
        let target = Target::find(file.path()).unwrap();
        for_all_engines(&target, Access::Buffered, 1000, |engine, mut reader| {
            let mut observer = CollectingObserver { content: vec![0; content.len()], remaining: 100 };
            let mut requests = BlockRequests::new(0..content.len() as u64, 1000, BlockOrder::Sequential);
            reader.read(&mut requests, &mut observer).unwrap();
            assert_eq!(observer.remaining, 0, "{engine}");
            observer.remaining = usize::MAX;
            reader.read(&mut requests, &mut observer).unwrap();
            assert!(observer.content == content, "{engine}");
        });
    }

    #[test]
    fn truncated_file_is_an_error() {
        for_all_truncated(|engine, error| assert!(matches!(error, Error::Truncated { .. }), "{engine}: {error}"));
    }

    fn for_all_truncated(check: impl Fn(Engine, Error)) {
        let options = ReadOptions {
            access: Access::Buffered,
            block: 4096,
            order: BlockOrder::Sequential,
            pages: PagePolicy::Base,
        };
        for engine in engines() {
            let (file, _) = file(1_000_000);
            let target = Target::find(file.path()).unwrap();
            let Ok(mut reader) = engine.open(&target, options) else { continue };
            file.as_file().set_len(500_000).unwrap();
            let mut requests = BlockRequests::new(0..1_000_000, 4096, BlockOrder::Sequential);
            check(engine, reader.read(&mut requests, &mut DigestObserver::<IoTally>::default()).unwrap_err());
        }
    }

    #[test]
    fn engine_names_round_trip() {
        for engine in Engine::ALL {
            assert_eq!(engine.name().parse(), Ok(engine));
        }
        assert!("dd".parse::<Engine>().unwrap_err().contains("pread"));
        assert!(Engine::Pread.with_depth(4).is_err());
        assert_eq!(
            Engine::Uring { depth: 1, registered: false }.with_depth(4).unwrap().to_string(),
            "io_uring depth 4"
        );
    }
}
