//! Samples made up by a model of the cache, with noise, without a jump, with too many; and samples that were recorded.

use kelvin_stats::Random;

use super::*;

const LIMIT: u64 = 128 << 20;

/// A cache of so many bytes, a device that is `ratio` times slower, and noise of this standard deviation of the logarithm.
struct Model {
    cache: u64,
    ratio: f64,
    noise: f64,
    random: Random,
}

impl Model {
    fn new(cache: u64, seed: u64) -> Self {
        Self { cache, ratio: 10.0, noise: 0.1, random: Random::new(seed) }
    }

    fn sample(&mut self, bytes: u64) -> Sample {
        let level = if bytes > self.cache { 9000.0 * self.ratio } else { 9000.0 };
        let block_nanoseconds = (0..PARTS).map(|_| level * (self.noise * self.random.normal()).exp()).collect();
        Sample { bytes, block_nanoseconds, resident: bytes.min(self.cache) }
    }

    fn samples(&mut self, sizes: &[u64]) -> Vec<Sample> {
        sizes.iter().map(|&bytes| self.sample(bytes)).collect()
    }
}

#[test]
fn sizes_grow_by_a_quarter_of_a_power_of_two_in_whole_blocks_of_each_part() {
    let sizes = sizes(LIMIT);
    assert_eq!(sizes.len(), 12);
    assert!(sizes.iter().all(|bytes| bytes.is_multiple_of((BLOCK * PARTS) as u64)));
    assert!(sizes.windows(2).all(|pair| (pair[1] as f64 / pair[0] as f64 - GROWTH).abs() < 0.02), "{sizes:?}");
    assert!((sizes[0] as f64 / LIMIT as f64 - 0.25).abs() < 0.01 && largest(LIMIT) > LIMIT * 8 / 5);
    assert!(most_read(LIMIT) < 36 * LIMIT);
}

#[test]
fn the_end_of_a_cache_is_found_wherever_it_is() {
    for (seed, share) in [0.4, 0.55, 0.7, 0.8, 0.9, 0.96, 1.0, 1.07, 1.3].into_iter().enumerate() {
        let cache = (share * LIMIT as f64) as u64;
        let mut model = Model::new(cache, seed as u64);
        let mut samples = model.samples(&sizes(LIMIT));
        samples.extend(model.samples(&finer(&samples)));
        let found = find(&samples).unwrap();
        assert!(found.stays <= cache && cache < found.leaves, "{share}: {found:?}");
        assert!((found.leaves - found.stays) as f64 <= 0.035 * cache as f64, "{share}: {found:?}");
        assert!(found.agrees(cache) && found.agrees(LIMIT) == ((0.9..=1.1).contains(&share)), "{share}: {found:?}");
        assert!((found.missing / found.in_memory - 10.0).abs() < 1.5 && found.p <= 0.01, "{share}: {found:?}");
        assert_eq!(found.resident, cache);
    }
}

/// Sizes, mean nanoseconds of a block in each part, bytes in memory: as they were found under a limit of 128 MiB, on a
/// virtual disk, with a neighbour that doubled the time of copying from the fifth size on.
const RECORDED: [(u64, [f64; PARTS], u64); 12] = [
    (33_423_360, [33798.6, 8642.3, 8352.5, 7811.9, 7535.8, 7606.5], 33_423_360),
    (39_714_816, [9636.4, 9589.2, 90226.5, 9753.6, 8398.0, 7595.4], 39_714_816),
    (47_579_136, [313519.1, 33379.0, 8371.2, 140016.4, 9238.7, 12108.8], 47_230_976),
    (56_623_104, [9748.7, 9764.5, 9958.4, 9689.4, 9587.2, 13329.7], 56_623_104),
    (67_239_936, [13196.7, 10628.7, 8777.5, 9769.9, 33185.2, 14432.2], 67_239_936),
    (79_822_848, [14296.3, 9954.7, 243950.9, 266898.5, 220562.2, 60081.8], 79_822_848),
    (94_765_056, [13625.1, 11546.9, 43576.2, 25781.1, 11958.4, 12999.8], 94_765_056),
    (112_852_992, [15777.4, 19953.3, 17676.4, 19140.0, 20140.2, 24897.5], 112_852_992),
    (134_086_656, [760855.3, 700715.8, 428346.8, 277970.4, 219380.8, 267267.4], 132_567_040),
    (159_645_696, [314861.1, 271256.1, 251381.1, 218567.5, 194971.6, 237117.0], 132_292_608),
    (189_923_328, [250175.0, 249703.4, 237552.4, 230223.6, 193250.9, 179092.8], 132_612_096),
    (225_705_984, [227963.7, 199698.6, 289862.1, 276638.8, 350630.5, 357094.8], 132_386_816),
];

#[test]
fn a_limit_of_128_mib_is_found_in_what_was_recorded() {
    let samples: Vec<Sample> = RECORDED
        .iter()
        .map(|(bytes, times, resident)| Sample {
            bytes: *bytes,
            block_nanoseconds: times.to_vec(),
            resident: *resident,
        })
        .collect();
    let found = find(&samples).unwrap();
    assert!(found.agrees(LIMIT) && found.missing > 5.0 * found.in_memory, "{found:?}");
    assert_eq!(samples.iter().map(|one| one.bytes).collect::<Vec<_>>(), sizes(LIMIT));
    let finer = finer(&samples);
    assert!(finer.len() == 5 && finer.iter().all(|bytes| (found.stays..found.leaves).contains(bytes)), "{finer:?}");
    // With its larger files left out, no end is to be seen.
    let small: Vec<Sample> = samples.into_iter().filter(|one| one.bytes < 120 << 20).collect();
    assert!(matches!(find(&small), Err(Doubt::NoJump { all_stayed: true, .. })));
}

#[test]
fn noise_is_never_a_size() {
    for seed in 0..300 {
        // Everything stays: whatever jumps is noise, up to a machine that is twice as slow now and then.
        let mut model = Model { noise: 0.02 * (seed % 30) as f64, ..Model::new(u64::MAX, seed) };
        let samples = model.samples(&sizes(LIMIT));
        assert!(find(&samples).is_err() && finer(&samples).is_empty(), "{seed}");
    }
}

#[test]
fn a_jump_by_a_busy_neighbour_is_told_from_one_by_the_cache() {
    let mut samples = Model::new(u64::MAX, 1).samples(&sizes(LIMIT));
    samples[7..].iter_mut().flat_map(|one| &mut one.block_nanoseconds).for_each(|time| *time *= 8.0);
    let Err(Doubt::Residency { jump, bytes, resident }) = find(&samples) else { panic!("{:?}", find(&samples)) };
    assert_eq!((jump.stays, jump.leaves, bytes, resident), (samples[6].bytes, samples[7].bytes, bytes, bytes));
    // And the other way round: a file that was already gone before the jump.
    let mut samples = Model::new(LIMIT, 2).samples(&sizes(LIMIT));
    samples[2].resident /= 2;
    let Err(doubt @ Doubt::Residency { .. }) = find(&samples) else { panic!("{:?}", find(&samples)) };
    assert!(doubt.to_string().contains("45.4 MiB, 22.7 MiB were in memory"), "{doubt}");
}

#[test]
fn a_device_as_fast_as_memory_and_a_cache_without_end_have_no_jump() {
    let fast = Model { ratio: 2.5, ..Model::new(LIMIT, 3) }.samples(&sizes(LIMIT));
    let doubt = find(&fast).unwrap_err();
    assert!(matches!(doubt, Doubt::NoJump { all_stayed: false, .. }), "{doubt}");
    assert!(doubt.to_string().contains("about as fast as memory"), "{doubt}");
    let large = Model::new(2 * LIMIT, 4).samples(&sizes(LIMIT));
    let doubt = find(&large).unwrap_err();
    assert!(doubt.to_string().contains("between files of 31.9 MiB and 215.2 MiB: all of them stayed"), "{doubt}");
    assert!(matches!(find(&[]).unwrap_err(), Doubt::NoJump { range: (0, 0), .. }));
}

#[test]
fn two_jumps_and_a_fall_are_no_size() {
    let mut samples = Model::new(LIMIT, 5).samples(&sizes(LIMIT));
    samples[3..6].iter_mut().flat_map(|one| &mut one.block_nanoseconds).for_each(|time| *time *= 6.0);
    let doubt = find(&samples).unwrap_err();
    assert!(matches!(&doubt, Doubt::Several { jumps } if jumps.len() == 3), "{doubt}");
    let mut samples = Model::new(u64::MAX, 6).samples(&sizes(LIMIT));
    samples[..5].iter_mut().flat_map(|one| &mut one.block_nanoseconds).for_each(|time| *time *= 6.0);
    assert!(matches!(find(&samples).unwrap_err(), Doubt::Falls(_)));
}

#[test]
fn a_file_at_the_edge_belongs_to_neither_side() {
    // The file just above the end is in part in memory: its last parts are slow and its first ones are not, or all of it is
    // in between.
    for partial in [[0.1, 0.1, 0.1, 1.0, 1.0, 1.0], [0.4; PARTS]] {
        let mut samples = Model::new(LIMIT, 7).samples(&sizes(LIMIT));
        let edge = samples.iter().position(|one| one.bytes > LIMIT).unwrap();
        samples[edge].block_nanoseconds.iter_mut().zip(partial).for_each(|(time, share)| *time *= share);
        let found = find(&samples).unwrap();
        assert_eq!((found.stays, found.leaves), (samples[edge - 1].bytes, samples[edge + 1].bytes), "{found:?}");
    }
}

#[test]
fn two_readings_are_sampled_for_real() {
    let file = tempfile::NamedTempFile::new_in(".").unwrap();
    let bytes = (BLOCK * PARTS * 4) as u64;
    std::fs::write(file.path(), vec![7; 2 * bytes as usize]).unwrap();
    let target = Target::find(file.path()).unwrap();
    let found = sample(&target, bytes).unwrap();
    assert_eq!((found.bytes, found.block_nanoseconds.len(), found.stayed()), (bytes, PARTS, true), "{found:?}");
    assert!(found.block_nanoseconds.iter().all(|&time| time > 100.0), "{found:?}");
}
