//! How fast each way computes the digest of a file in memory: `cargo run --release --example ways FILE`.
#![allow(clippy::print_stdout)]

use kelvin_file::digest::Digesting;
use kelvin_file::{Access, Engine, How, Order, Pages, Requests, Tally, Target};

fn main() {
    let path = std::env::args().nth(1).expect("the name of a file");
    let target = Target::find(path.as_ref()).unwrap();
    for _ in 0..3 {
        for engine in [Engine::Pread, Engine::Mmap, Engine::MmapPopulate, Engine::MmapInPlace] {
            for block in [64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20] {
                let how = How { access: Access::Buffered, block, order: Order::Sequential, pages: Pages::Base };
                let begun = std::time::Instant::now();
                let mut reader = engine.open(&target, how).unwrap();
                let mut observer = Digesting::<Tally>::default();
                reader.read(&mut Requests::new(0..target.bytes(), block, Order::Sequential), &mut observer).unwrap();
                drop(reader);
                let rate = target.bytes() as f64 / begun.elapsed().as_nanos() as f64;
                println!("{:14} {:5} KiB {rate:6.1} GB/s {}", engine.name(), block >> 10, observer.digest);
            }
        }
    }
}
