//! One file for each family of ways.

pub(crate) mod buffered;
pub(crate) mod mapped;
pub(crate) mod plain;
pub(crate) mod ring;
pub(crate) mod streamed;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::ops::ControlFlow;

    use crate::digest::Digesting;
    use crate::{Access, Engine, Error, How, Observer, Order, Pages, Request, Requests, Tally, Target};

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
    struct Collect {
        content: Vec<u8>,
        left: usize,
    }

    impl Observer for Collect {
        type Stamp = u8;

        fn begin(&mut self) -> u8 {
            7
        }

        fn end(&mut self, stamp: u8, request: Request, data: &[u8]) -> ControlFlow<()> {
            assert_eq!((stamp, data.len()), (7, request.bytes));
            self.content[request.offset as usize..][..data.len()].copy_from_slice(data);
            // Requests in flight when there is enough complete all the same.
            self.left = self.left.saturating_sub(1);
            if self.left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// Reads by every way available here; says which are not.
    fn by_all(target: &Target, access: Access, block: usize, mut check: impl FnMut(Engine, crate::Reader)) {
        for engine in engines().into_iter().filter(|engine| access == Access::Buffered || engine.can_be_direct()) {
            match engine.open(target, How { access, block, order: Order::Sequential, pages: Pages::Base }) {
                Ok(reader) => check(engine, reader),
                Err(error) if error.is_absence() => {
                    kelvin_testing::Missing::said(error).skips(format!("reading by {engine}"))
                }
                Err(error) => panic!("{engine}: {error}"),
            }
        }
    }

    #[test]
    fn every_way_reads_every_byte_in_its_place() {
        for (bytes, block) in [(0, 4096), (1, 1), (1000, 1), (100_000, 4096), (100_001, 777), (5_000_000, 1 << 20)] {
            let (file, content) = file(bytes);
            let target = Target::find(file.path()).unwrap();
            for order in [Order::Sequential, Order::Random { seed: 5 }] {
                by_all(&target, Access::Buffered, block, |engine, mut reader| {
                    let mut all = Collect { content: vec![0; bytes], left: usize::MAX };
                    let mut requests = Requests::new(0..bytes as u64, block, order);
                    reader.read(&mut requests, &mut all).unwrap();
                    assert!(all.content == content, "{engine} {block} {order:?}");
                });
            }
        }
    }

    #[test]
    fn every_direct_way_reads_every_byte_up_to_the_end_of_the_file() {
        let (file, content) = file(1_000_123);
        let target = Target::find(file.path()).unwrap();
        by_all(&target, Access::Direct, 16384, |engine, mut reader| {
            for order in [Order::Sequential, Order::Random { seed: 9 }] {
                let mut all = Collect { content: vec![0; content.len()], left: usize::MAX };
                reader.read(&mut Requests::new(0..content.len() as u64, 16384, order), &mut all).unwrap();
                assert!(all.content == content, "{engine} {order:?}");
            }
        });
    }

    #[test]
    fn a_part_of_a_file_and_several_passes() {
        let (file, content) = file(300_000);
        let target = Target::find(file.path()).unwrap();
        by_all(&target, Access::Buffered, 10_000, |engine, mut reader| {
            let mut requests = Requests::new(20_000..250_000, 10_000, Order::Sequential).passes(3);
            let mut observer = Digesting::<Tally>::default();
            reader.read(&mut requests, &mut observer).unwrap();
            assert_eq!(observer.inner, Tally { bytes: 3 * 230_000, requests: 69 }, "{engine}");
            let mut expected = crate::Digest::default();
            expected.add(20_000, &content[20_000..250_000]);
            assert_eq!(observer.digest, expected, "{engine}");
        });
    }

    #[test]
    fn an_observer_that_has_enough_ends_the_work_and_it_can_go_on() {
        let (file, content) = file(1_000_000);
        let target = Target::find(file.path()).unwrap();
        by_all(&target, Access::Buffered, 1000, |engine, mut reader| {
            let mut all = Collect { content: vec![0; content.len()], left: 100 };
            let mut requests = Requests::new(0..content.len() as u64, 1000, Order::Sequential);
            reader.read(&mut requests, &mut all).unwrap();
            assert_eq!(all.left, 0, "{engine}");
            all.left = usize::MAX;
            reader.read(&mut requests, &mut all).unwrap();
            assert!(all.content == content, "{engine}");
        });
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error_that_says_so() {
        by_all_truncated(|engine, error| assert!(matches!(error, Error::Truncated { .. }), "{engine}: {error}"));
    }

    fn by_all_truncated(check: impl Fn(Engine, Error)) {
        let how = How { access: Access::Buffered, block: 4096, order: Order::Sequential, pages: Pages::Base };
        for engine in engines() {
            let (file, _) = file(1_000_000);
            let target = Target::find(file.path()).unwrap();
            let Ok(mut reader) = engine.open(&target, how) else { continue };
            file.as_file().set_len(500_000).unwrap();
            let mut requests = Requests::new(0..1_000_000, 4096, Order::Sequential);
            check(engine, reader.read(&mut requests, &mut Digesting::<Tally>::default()).unwrap_err());
        }
    }

    #[test]
    fn names_are_read_back() {
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
