//! How fast each way computes the digest of a file in memory: `cargo run --release --example engines FILE`.
#![allow(clippy::print_stdout)]

use kelvin_file::digest::DigestObserver;
use kelvin_file::{Access, BlockOrder, BlockRequests, Engine, IoTally, PagePolicy, ReadOptions, Target};

fn main() {
    let path = std::env::args().nth(1).expect("the name of a file");
    let target = Target::find(path.as_ref()).unwrap();
    for _ in 0..3 {
        for engine in [Engine::Pread, Engine::Mmap, Engine::MmapPopulate, Engine::MmapInPlace] {
            for block in [64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20] {
                let how = ReadOptions {
                    access: Access::Buffered,
                    block,
                    order: BlockOrder::Sequential,
                    pages: PagePolicy::Base,
                };
                let begun = std::time::Instant::now();
                let mut reader = engine.open(&target, how).unwrap();
                let mut observer = DigestObserver::<IoTally>::default();
                reader
                    .read(&mut BlockRequests::new(0..target.bytes(), block, BlockOrder::Sequential), &mut observer)
                    .unwrap();
                drop(reader);
                let rate = target.bytes() as f64 / begun.elapsed().as_nanos() as f64;
                println!("{:14} {:5} KiB {rate:6.1} GB/s {}", engine.name(), block >> 10, observer.digest);
            }
        }
    }
}
