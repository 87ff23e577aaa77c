//! Sorting by indices: one sort for every type and order, where the standard library's is compiled anew for each, five kilobytes at a time.

use std::cmp::Ordering;

/// Stable sorts of slices that are short, or that nobody waits for: a comparison is a call through a pointer.
pub trait IndirectSort<T> {
    /// As [`slice::sort_by`].
    fn indirect_sort_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// As [`slice::sort_by_key`].
    fn indirect_sort_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.indirect_sort_by(|first, second| key(first).cmp(&key(second)));
    }

    /// As [`slice::sort`].
    fn indirect_sort(&mut self)
    where
        T: Ord,
    {
        self.indirect_sort_by(T::cmp);
    }
}

impl<T> IndirectSort<T> for [T] {
    fn indirect_sort_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let items: &[T] = self;
        let order = sorted_indices(items.len(), &mut |first, second| compare(&items[first], &items[second]));
        for (place, source) in swaps(order) {
            self.swap(place, source);
        }
    }
}

/// Indices in the order of what they stand for.
fn sorted_indices(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&first, &second| compare(first, second));
    order
}

/// The swaps, one after the other, that bring to each place what was at the index in it: along each cycle of the permutation.
fn swaps(mut order: Vec<usize>) -> Vec<(usize, usize)> {
    let mut swaps = Vec::with_capacity(order.len());
    for start in 0..order.len() {
        let mut place = start;
        loop {
            // What is done points to itself.
            let source = std::mem::replace(&mut order[place], place);
            if source == start || source == place {
                break;
            }
            swaps.push((place, source));
            place = source;
        }
    }
    swaps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All permutations of a number of keys of which some are equal.
    fn permutations(keys: &[u32]) -> Vec<Vec<u32>> {
        if keys.len() < 2 {
            return vec![keys.to_vec()];
        }
        let with_first = |index: usize| {
            let mut rest = keys.to_vec();
            let first = rest.remove(index);
            permutations(&rest).into_iter().map(move |mut permutation| {
                permutation.insert(0, first);
                permutation
            })
        };
        (0..keys.len()).flat_map(with_first).collect()
    }

    #[test]
    fn sorts_as_the_standard_library() {
        for keys in [&[][..], &[1], &[2, 1], &[3, 1, 1, 2, 3, 0]] {
            for permutation in permutations(keys) {
                // The texts tell equal keys apart, and own memory.
                let items: Vec<(u32, String)> =
                    permutation.iter().enumerate().map(|(place, &key)| (key, format!("item {place}"))).collect();
                let mut expected = items.clone();
                expected.sort_by_key(|item| item.0);
                let mut sorted = items.clone();
                sorted.indirect_sort_by_key(|item| item.0);
                assert_eq!(sorted, expected);
                let mut descending = items.clone();
                descending.indirect_sort_by(|first, second| second.cmp(first));
                expected.sort();
                expected.reverse();
                assert_eq!(descending, expected);
                descending.indirect_sort();
                expected.sort();
                assert_eq!(descending, expected);
            }
        }
    }
}
