//! Samples simulated by a model of the cache, with noise, without a jump, with too many; and recorded samples.

use kelvin_stats::Random;

use super::*;

const LIMIT: u64 = 128 << 20;

/// A cache of this many bytes, a device `ratio` times slower, and noise of this standard deviation of the logarithm.
struct SimulatedCache {
    cache: u64,
    ratio: f64,
    noise: f64,
    random: Random,
}

impl SimulatedCache {
    fn new(cache: u64, seed: u64) -> Self {
        Self { cache, ratio: 10.0, noise: 0.1, random: Random::new(seed) }
    }

    fn sample(&mut self, bytes: u64) -> SizeSample {
        let level = if bytes > self.cache { 9000.0 * self.ratio } else { 9000.0 };
        let block_nanoseconds = (0..TIMED_PARTS).map(|_| level * (self.noise * self.random.normal()).exp()).collect();
        SizeSample { bytes, block_nanoseconds, resident: bytes.min(self.cache) }
    }

    fn samples(&mut self, sizes: &[u64]) -> Vec<SizeSample> {
        sizes.iter().map(|&bytes| self.sample(bytes)).collect()
    }
}

#[test]
fn sizes_grow_by_fourth_root_of_two() {
    let sizes = initial_sizes(LIMIT);
    assert_eq!(sizes.len(), 12);
    assert!(sizes.iter().all(|bytes| bytes.is_multiple_of((BLOCK * TIMED_PARTS) as u64)));
    assert!(sizes.windows(2).all(|pair| (pair[1] as f64 / pair[0] as f64 - SIZE_GROWTH).abs() < 0.02), "{sizes:?}");
    assert!((sizes[0] as f64 / LIMIT as f64 - 0.25).abs() < 0.01 && largest_size(LIMIT) > LIMIT * 8 / 5);
    assert!(max_bytes_read(LIMIT) < 36 * LIMIT);
}

#[test]
fn cache_size_is_found_at_any_position() {
    for (seed, share) in [0.4, 0.55, 0.7, 0.8, 0.9, 0.96, 1.0, 1.07, 1.3].into_iter().enumerate() {
        let cache = (share * LIMIT as f64) as u64;
        let mut model = SimulatedCache::new(cache, seed as u64);
        let mut samples = model.samples(&initial_sizes(LIMIT));
        samples.extend(model.samples(&refined_sizes(&samples)));
        let result = find_page_cache_size(&samples).unwrap();
        assert!(result.jump.largest_before <= cache && cache < result.jump.smallest_after, "{share}: {result:?}");
        assert!(
            (result.jump.smallest_after - result.jump.largest_before) as f64 <= 0.035 * cache as f64,
            "{share}: {result:?}"
        );
        assert!(result.agrees(cache) && result.agrees(LIMIT) == ((0.9..=1.1).contains(&share)), "{share}: {result:?}");
        assert!(
            (result.jump.after / result.jump.before - 10.0).abs() < 1.5 && result.jump.p <= 0.01,
            "{share}: {result:?}"
        );
        assert_eq!(result.resident, cache);
    }
}

/// Sizes, nanoseconds of a block in each part, bytes in memory. They were measured under a limit of 128 MiB, on a virtual disk, with four
/// times as many busy processes as processors.
const RECORDED_SAMPLES: [(u64, [f64; TIMED_PARTS], u64); 17] = [
    (33_423_360, [15544.0, 15893.0, 17205.0, 20611.0, 19449.0, 16605.0], 33_423_360),
    (39_714_816, [14071.0, 12759.0, 9684.0, 12038.0, 11327.0, 10716.0], 39_714_816),
    (47_579_136, [10315.0, 11707.0, 12118.0, 12369.0, 12839.0, 11497.0], 47_579_136),
    (56_623_104, [10736.0, 12714.0, 10530.5, 11497.0, 10856.5, 10120.0], 56_623_104),
    (67_239_936, [11247.0, 11637.0, 11327.0, 13099.0, 11958.0, 12739.0], 67_239_936),
    (79_822_848, [12398.0, 12899.0, 12238.0, 11227.0, 12489.0, 12619.0], 79_822_848),
    (94_765_056, [13009.0, 11988.0, 12589.0, 12139.0, 11527.0, 12679.0], 94_765_056),
    (112_852_992, [15403.0, 13511.0, 15283.0, 14822.0, 15904.0, 16194.0], 112_852_992),
    (116_391_936, [13034.5, 12503.0, 13911.0, 13440.0, 16574.5, 12269.0], 115_785_728),
    (119_930_880, [12418.0, 15003.0, 13580.0, 13159.0, 12799.0, 12719.0], 119_930_880),
    (123_469_824, [14111.0, 15062.5, 13465.0, 15408.0, 13750.5, 14887.5], 123_469_824),
    (127_008_768, [15182.0, 14592.0, 14742.0, 16505.0, 15653.0, 15994.0], 127_008_768),
    (130_547_712, [17636.5, 15773.0, 13595.5, 12884.5, 16575.0, 16985.5], 130_547_712),
    (134_086_656, [167000.0, 162072.0, 162622.0, 160610.0, 155402.0, 194180.0], 132_567_040),
    (159_645_696, [178566.0, 184515.0, 204865.5, 201841.5, 170794.5, 159673.5], 132_509_696),
    (189_923_328, [243833.0, 170224.0, 161260.0, 167700.0, 165808.0, 168031.0], 132_612_096),
    (225_705_984, [178826.0, 167034.0, 154425.5, 166012.5, 178281.0, 190854.5], 132_575_232),
];

/// Like `RECORDED_SAMPLES`, with a file of the size of the cache that stayed in some of its parts and not in others, and with times of both levels.
const RECORDED_EDGE_SAMPLES: [(u64, [f64; TIMED_PARTS], u64); 11] = [
    (33_423_360, [11096.0, 14181.0, 14252.0, 14281.0, 14402.0, 13721.0], 33_423_360),
    (39_714_816, [15263.0, 19148.0, 19639.0, 20000.0, 18788.0, 17326.0], 39_714_816),
    (47_579_136, [15023.0, 14782.0, 15022.0, 14372.0, 14992.0, 14812.0], 47_579_136),
    (56_623_104, [20355.5, 19179.0, 19579.5, 15503.5, 14597.0, 14767.0], 56_623_104),
    (67_239_936, [15142.0, 14472.0, 14462.0, 14111.0, 14252.0, 14572.0], 67_239_936),
    (79_822_848, [15092.0, 15052.0, 14993.0, 14412.0, 14582.0, 14962.0], 79_822_848),
    (94_765_056, [20270.0, 19179.0, 19580.0, 19049.0, 19850.0, 16705.0], 94_765_056),
    (112_852_992, [18377.0, 20521.0, 19719.0, 19509.0, 19819.0, 16425.0], 112_852_992),
    (134_086_656, [14522.0, 95472.0, 107290.0, 16234.0, 17526.0, 54822.0], 129_232_896),
    (159_645_696, [154951.0, 178246.0, 194941.0, 183849.5, 189262.0, 180419.0], 131_641_344),
    (189_923_328, [173900.0, 178336.0, 167630.0, 167360.0, 166378.0, 169253.0], 131_309_568),
];

fn recorded(samples: &[(u64, [f64; TIMED_PARTS], u64)]) -> Vec<SizeSample> {
    let sample = |(bytes, times, resident): &(u64, [f64; TIMED_PARTS], u64)| SizeSample {
        bytes: *bytes,
        block_nanoseconds: times.to_vec(),
        resident: *resident,
    };
    samples.iter().map(sample).collect()
}

#[test]
fn simulated_edge_sample_is_ignored() {
    let samples = recorded(&RECORDED_EDGE_SAMPLES);
    let result = find_page_cache_size(&samples).unwrap();
    assert_eq!((result.jump.largest_before, result.jump.smallest_after), (112_852_992, 159_645_696));
    assert!(result.agrees(LIMIT) && refined_sizes(&samples).len() == REFINED_SIZES as usize, "{result:?}");
    // Two sizes that were in part in memory are no edge.
    let mut samples = samples;
    samples[7].resident /= 2;
    assert!(
        matches!(find_page_cache_size(&samples), Err(PageCacheSizeError::ResidencyMismatch { bytes: 112_852_992, .. })),
        "{:?}",
        find_page_cache_size(&samples)
    );
}

#[test]
fn recorded_samples_show_128_mib_limit() {
    let samples = recorded(&RECORDED_SAMPLES);
    let result = find_page_cache_size(&samples).unwrap();
    assert!(result.agrees(LIMIT) && result.jump.after > 5.0 * result.jump.before, "{result:?}");
    let (coarse, fine): (Vec<SizeSample>, Vec<SizeSample>) =
        samples.iter().cloned().partition(|sample| initial_sizes(LIMIT).contains(&sample.bytes));
    assert_eq!(coarse.len(), initial_sizes(LIMIT).len());
    assert_eq!(refined_sizes(&coarse), fine.iter().map(|sample| sample.bytes).collect::<Vec<_>>());
    // Without its larger files no end can be seen.
    let smaller_samples: Vec<SizeSample> = samples.into_iter().filter(|sample| sample.bytes < 120 << 20).collect();
    assert!(matches!(find_page_cache_size(&smaller_samples), Err(PageCacheSizeError::NoJump { all_stayed: true, .. })));
}

#[test]
fn noise_has_no_jump() {
    for seed in 0..300 {
        // Everything stays: any jump is noise, up to a machine that is twice as slow now and then.
        let mut model = SimulatedCache { noise: 0.02 * (seed % 30) as f64, ..SimulatedCache::new(u64::MAX, seed) };
        let samples = model.samples(&initial_sizes(LIMIT));
        assert!(find_page_cache_size(&samples).is_err() && refined_sizes(&samples).is_empty(), "{seed}");
    }
}

#[test]
fn jump_without_residency_change_is_rejected() {
    let mut samples = SimulatedCache::new(u64::MAX, 1).samples(&initial_sizes(LIMIT));
    samples[7..].iter_mut().flat_map(|sample| &mut sample.block_nanoseconds).for_each(|time| *time *= 8.0);
    let Err(PageCacheSizeError::ResidencyMismatch { jump, bytes, resident }) = find_page_cache_size(&samples) else {
        panic!("{:?}", find_page_cache_size(&samples))
    };
    assert_eq!(
        (jump.largest_before, jump.smallest_after, bytes, resident),
        (samples[6].bytes, samples[7].bytes, bytes, bytes)
    );
    // And the other way round: a file that was already gone before the jump.
    let mut samples = SimulatedCache::new(LIMIT, 2).samples(&initial_sizes(LIMIT));
    samples[2].resident /= 2;
    let Err(error @ PageCacheSizeError::ResidencyMismatch { .. }) = find_page_cache_size(&samples) else {
        panic!("{:?}", find_page_cache_size(&samples))
    };
    assert!(error.to_string().contains("45.4 MiB, 22.7 MiB were in memory"), "{error}");
}

#[test]
fn fast_device_or_unlimited_cache_has_no_jump() {
    let fast = SimulatedCache { ratio: 2.5, ..SimulatedCache::new(LIMIT, 3) }.samples(&initial_sizes(LIMIT));
    let error = find_page_cache_size(&fast).unwrap_err();
    assert!(matches!(error, PageCacheSizeError::NoJump { all_stayed: false, .. }), "{error}");
    assert!(error.to_string().contains("about as fast as memory"), "{error}");
    let large = SimulatedCache::new(2 * LIMIT, 4).samples(&initial_sizes(LIMIT));
    let error = find_page_cache_size(&large).unwrap_err();
    assert!(error.to_string().contains("between files of 31.9 MiB and 215.2 MiB: all of them stayed"), "{error}");
    assert!(matches!(find_page_cache_size(&[]).unwrap_err(), PageCacheSizeError::NoJump { range: (0, 0), .. }));
}

#[test]
fn several_or_falling_jumps_are_rejected() {
    let mut samples = SimulatedCache::new(LIMIT, 5).samples(&initial_sizes(LIMIT));
    samples[3..6].iter_mut().flat_map(|sample| &mut sample.block_nanoseconds).for_each(|time| *time *= 6.0);
    let error = find_page_cache_size(&samples).unwrap_err();
    assert!(matches!(&error, PageCacheSizeError::SeveralJumps { jumps } if jumps.len() == 3), "{error}");
    let mut samples = SimulatedCache::new(u64::MAX, 6).samples(&initial_sizes(LIMIT));
    samples[..5].iter_mut().flat_map(|sample| &mut sample.block_nanoseconds).for_each(|time| *time *= 6.0);
    assert!(matches!(find_page_cache_size(&samples).unwrap_err(), PageCacheSizeError::FallingJump(_)));
}

#[test]
fn recorded_edge_sample_is_ignored() {
    // The file just above the end is in part in memory. Its last parts are slow and its first ones are not, or all of it is
    // in between.
    for partial in [[0.1, 0.1, 0.1, 1.0, 1.0, 1.0], [0.4; TIMED_PARTS]] {
        let mut samples = SimulatedCache::new(LIMIT, 7).samples(&initial_sizes(LIMIT));
        let edge = samples.iter().position(|sample| sample.bytes > LIMIT).unwrap();
        samples[edge].block_nanoseconds.iter_mut().zip(partial).for_each(|(time, share)| *time *= share);
        let result = find_page_cache_size(&samples).unwrap();
        assert_eq!(
            (result.jump.largest_before, result.jump.smallest_after),
            (samples[edge - 1].bytes, samples[edge + 1].bytes),
            "{result:?}"
        );
    }
}

#[test]
fn real_file_gives_two_samples() {
    let file = tempfile::NamedTempFile::new_in(".").unwrap();
    let bytes = (BLOCK * TIMED_PARTS * 4) as u64;
    std::fs::write(file.path(), vec![7; 2 * bytes as usize]).unwrap();
    let target = Target::find(file.path()).unwrap();
    let sample = measure_size(&target, bytes).unwrap();
    assert_eq!(
        (sample.bytes, sample.block_nanoseconds.len(), sample.is_resident()),
        (bytes, TIMED_PARTS, true),
        "{sample:?}"
    );
    assert!(sample.block_nanoseconds.iter().all(|&time| time > 0.0), "{sample:?}");
}
