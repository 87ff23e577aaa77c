//! How many ranks work at once, which ones, and who reads what another wrote.

use std::collections::BTreeMap;

use kelvin_stats::MIN_LOADS;

/// The numbers of ranks that work at once: the powers of two and all ranks; every number where these are fewer than a fit of the
/// scalability needs.
pub fn rank_counts(ranks: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |count| count.checked_mul(2));
    let mut counts: Vec<usize> = powers.take_while(|&count| count < ranks).collect();
    counts.push(ranks);
    if counts.len() < MIN_LOADS { (1..=ranks).collect() } else { counts }
}

/// The ranks that work in a pass, of so many ranks. They move on from pass to pass, so that the rate of few ranks is not that of the first.
pub fn participants(count: usize, ranks: usize, pass: usize) -> Vec<usize> {
    (0..count).map(|index| (pass + index) % ranks).collect()
}

/// Who reads the part of each of these ranks: another of them, and one on another kernel if any way of dividing them has that for all. The part
/// of one rank alone is read by a rank that does nothing else. `kernels` has the kernel of each rank of the job. By the reader.
pub fn readers(ranks: &[usize], kernels: &[usize]) -> BTreeMap<usize, usize> {
    if let &[writer] = ranks {
        return BTreeMap::from([(reader_of(writer, kernels), writer)]);
    }
    let mut ordered = ranks.to_vec();
    ordered.sort_by_key(|&rank| (kernels[rank], rank));
    // Ranks of a kernel are neighbours. Moved on by the size of the largest group, each meets another one.
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    ordered.iter().for_each(|&rank| *sizes.entry(kernels[rank]).or_default() += 1);
    let largest = sizes.values().copied().max().unwrap_or_default();
    let shift = if largest < ordered.len() { largest } else { 1 };
    (0..ordered.len()).map(|index| (ordered[index], ordered[(index + shift) % ordered.len()])).collect()
}

/// The next rank on another kernel, else the next one; the writer itself where there is no other.
fn reader_of(writer: usize, kernels: &[usize]) -> usize {
    let mut others = (1..kernels.len()).map(|step| (writer + step) % kernels.len());
    let elsewhere = others.clone().find(|&rank| kernels[rank] != kernels[writer]);
    elsewhere.or_else(|| others.next()).unwrap_or(writer)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kelvin_stats::Random;

    use super::*;

    #[test]
    fn counts_are_powers_of_two_and_all() {
        assert_eq!(rank_counts(8), [1, 2, 4, 8]);
        assert_eq!(rank_counts(100), [1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(rank_counts(5), [1, 2, 4, 5]);
        assert_eq!(rank_counts(4), [1, 2, 3, 4]);
        assert_eq!(rank_counts(1), [1]);
    }

    #[test]
    fn participants_move_on_from_pass_to_pass() {
        assert_eq!(participants(2, 3, 0), [0, 1]);
        assert_eq!(participants(2, 3, 2), [2, 0]);
        assert_eq!(participants(3, 3, 4), [1, 2, 0]);
    }

    #[test]
    fn each_part_is_read_once_and_by_another_kernel_where_possible() {
        let mut random = Random::new(3);
        for _ in 0..2000 {
            let ranks = 1 + random.index_below(12);
            let kernels: Vec<usize> = (0..ranks).map(|_| random.index_below(4)).collect();
            let count = 1 + random.index_below(ranks);
            let working = participants(count, ranks, random.index_below(5));
            let readers = readers(&working, &kernels);
            if count > 1 {
                assert_eq!(readers.keys().copied().collect::<BTreeSet<_>>(), working.iter().copied().collect());
            }
            assert_eq!(readers.values().copied().collect::<BTreeSet<_>>(), working.iter().copied().collect());
            let of_kernel = |kernel| working.iter().filter(|&&rank| kernels[rank] == kernel).count();
            let largest = (0..4).map(of_kernel).max().unwrap();
            let same = readers.iter().filter(|(reader, writer)| kernels[**reader] == kernels[**writer]).count();
            // A kernel with more than half of the ranks has to read some of its own. One rank alone has a reader elsewhere if there is one.
            let has_one_kernel = kernels.iter().all(|kernel| *kernel == kernels[0]);
            let expected = if count == 1 { usize::from(has_one_kernel) } else { (2 * largest).saturating_sub(count) };
            assert_eq!(same, expected, "{working:?} on {kernels:?}: {readers:?}");
            if ranks > 1 {
                assert!(readers.iter().all(|(reader, writer)| reader != writer), "{readers:?}");
            }
        }
    }
}
