//! A small seeded random number generator, so that every resampling is reproducible.

use std::f64::consts::PI;

/// xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), seeded by splitmix64.
///
/// For resampling and simulation only, never for secrets.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// The generator with this seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self([next(), next(), next(), next()])
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in 0 (included) to 1 (excluded).
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A uniform index below `n`, which must be positive. The bias is below n / 2^64.
    pub fn index_below(&mut self, n: usize) -> usize {
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Standard normal, by the method of Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (2.0 * PI * self.uniform()).cos()
    }

    /// Puts the values in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.index_below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeding_is_splitmix64() {
        // Reference output of Vigna's splitmix64.c for seed 1234567.
        let state = Random::new(1_234_567).0;
        assert_eq!(state[0], 6_457_827_717_110_365_317);
        assert_eq!(state[1], 3_203_168_211_198_807_973);
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut random = Random::new(7);
        let n = 200_000;
        let uniform: f64 = (0..n).map(|_| random.uniform()).sum::<f64>() / f64::from(n);
        assert!((uniform - 0.5).abs() < 0.003);
        let normal: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        assert!(crate::mean(&normal).abs() < 0.01);
        assert!((crate::variance(&normal) - 1.0).abs() < 0.015);
        let counts = (0..60_000).fold([0; 6], |mut counts, _| {
            counts[random.index_below(6)] += 1;
            counts
        });
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
    }

    #[test]
    fn shuffle_keeps_all_values() {
        let mut values: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut values);
        assert!(values.windows(2).any(|pair| pair[0] > pair[1]));
        values.sort_unstable();
        assert_eq!(values, (0..100).collect::<Vec<u32>>());
    }
}
