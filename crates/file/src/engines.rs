//! One file for each family of ways, and what those have in common that both read and write.

pub(crate) mod mmap;
pub(crate) mod stream;
pub(crate) mod syscalls;
pub(crate) mod uring;

use std::fs::File;

use crate::block_requests::{BlockRequest, BlockRequests};
use crate::observer::Observer;
use crate::target::{Access, Target};
use crate::{PagePolicy, Result};

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

/// A way of moving blocks between a file and buffers of its own, in either direction.
#[derive(Debug)]
pub(crate) enum BlockEngine {
    Syscall(syscalls::SyscallEngine),
    Uring(Box<uring::UringEngine>),
}

impl BlockEngine {
    /// Makes requests; `prepare` is given the buffer of each before its time begins.
    #[inline]
    pub(crate) fn run_requests<O: Observer>(
        &mut self,
        requests: &mut BlockRequests,
        observer: &mut O,
        prepare: impl FnMut(BlockRequest, &mut [u8]),
    ) -> Result<()> {
        match self {
            Self::Syscall(plain) => plain.run_requests(requests, observer, prepare),
            Self::Uring(ring) => ring.run_requests(requests, observer, prepare),
        }
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        match self {
            Self::Syscall(plain) => plain.file(),
            Self::Uring(ring) => ring.file(),
        }
    }

    /// Fills all buffers with a byte.
    pub(crate) fn fill_buffers(&mut self, byte: u8) {
        match self {
            Self::Syscall(plain) => plain.buffer_mut().fill(byte),
            Self::Uring(ring) => ring.each_buffer(|buffer| buffer.fill(byte)),
        }
    }

    /// What was done that the settings do not say.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            Self::Syscall(plain) => plain.notes(),
            Self::Uring(ring) => ring.notes(),
        }
    }

    /// The mean queue depth, counted at completions; none where it is always one.
    pub(crate) fn achieved_depth(&self) -> Option<f64> {
        match self {
            Self::Syscall(_) => None,
            Self::Uring(ring) => ring.achieved_depth(),
        }
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
        left: usize,
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
            self.left = self.left.saturating_sub(1);
            if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// Reads by every way available here; says which are not.
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
                    let mut all = CollectingObserver { content: vec![0; bytes], left: usize::MAX };
                    let mut requests = BlockRequests::new(0..bytes as u64, block, order);
                    reader.read(&mut requests, &mut all).unwrap();
                    assert!(all.content == content, "{engine} {block} {order:?}");
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
                let mut all = CollectingObserver { content: vec![0; content.len()], left: usize::MAX };
                reader.read(&mut BlockRequests::new(0..content.len() as u64, 16384, order), &mut all).unwrap();
                assert!(all.content == content, "{engine} {order:?}");
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
            let mut all = CollectingObserver { content: vec![0; content.len()], left: 100 };
            let mut requests = BlockRequests::new(0..content.len() as u64, 1000, BlockOrder::Sequential);
            reader.read(&mut requests, &mut all).unwrap();
            assert_eq!(all.left, 0, "{engine}");
            all.left = usize::MAX;
            reader.read(&mut requests, &mut all).unwrap();
            assert!(all.content == content, "{engine}");
        });
    }

    #[test]
    fn truncated_file_is_an_error() {
        for_all_truncated(|engine, error| assert!(matches!(error, Error::Truncated { .. }), "{engine}: {error}"));
    }

    fn for_all_truncated(check: impl Fn(Engine, Error)) {
        let how = ReadOptions {
            access: Access::Buffered,
            block: 4096,
            order: BlockOrder::Sequential,
            pages: PagePolicy::Base,
        };
        for engine in engines() {
            let (file, _) = file(1_000_000);
            let target = Target::find(file.path()).unwrap();
            let Ok(mut reader) = engine.open(&target, how) else { continue };
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
