//! How often the study of a server under load is right: simulated studies of random servers, judged and compared with what was
//! planted. `cargo run --release --example load_studies -- 3000`

use kelvin_analysis::testing::load::PlantedStudy;

#[allow(clippy::print_stdout, reason = "a program of its own")]
fn main() {
    let studies: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(300);
    let mut tally: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    for seed in 0..studies {
        let planted = PlantedStudy::random(seed);
        let run = planted.study.run();
        let judgement = planted.judge(&kelvin_analysis::studies(&run));
        if judgement.is_wrong() {
            println!("{seed}: {judgement:?} {planted:?}");
        }
        *tally.entry(judgement.label()).or_default() += 1;
    }
    for (kind, count) in tally {
        println!("{count:6} {kind}");
    }
}
