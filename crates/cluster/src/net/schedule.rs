//! Which pairs measure at the same time: rounds of disjoint pairs, divided where hosts share CPUs.

use std::collections::BTreeMap;

use crate::placement::Kernels;

/// Two ranks that measure with each other.
pub type Pair = [usize; 2];

/// Every pair of `ranks` ranks once, in rounds in which each rank is in at most one pair: by the circle method of round-robin tournaments
/// (Kirkman 1847). One rank stays, and the others move on by one place from round to round. There are `ranks - 1` rounds, or `ranks` of an
/// odd number, in each of which one rank rests.
pub fn tournament(ranks: usize) -> Vec<Vec<Pair>> {
    let places = ranks + ranks % 2;
    let rest = ranks;
    let rounds = 0..places.saturating_sub(1);
    let round = |round: usize| {
        let moving = places - 1;
        let fixed = [moving, round];
        let crossing = (1..places / 2).map(|step| [(round + step) % moving, (round + moving - step) % moving]);
        let pairs =
            std::iter::once(fixed).chain(crossing).map(|[first, second]| [first.min(second), first.max(second)]);
        pairs.filter(|&[_, second]| ranks.is_multiple_of(2) || second != rest).collect()
    };
    rounds.map(round).collect()
}

/// The pairs across the middle of the ranks, all of which measure at once: the bisection.
pub fn bisection(ranks: usize) -> Vec<Pair> {
    (0..ranks / 2).map(|first| [first, first + ranks / 2]).collect()
}

impl Kernels {
    /// Divides a round so that no part has more ranks of a kernel than its capacity: two ends of a pair that share a CPU would measure how
    /// the kernel switches between them.
    pub fn divide(&self, round: &[Pair]) -> Vec<Vec<Pair>> {
        let mut parts: Vec<(Vec<usize>, Vec<Pair>)> = Vec::new();
        for &pair in round {
            let [first, second] = pair.map(|rank| self.of_rank[rank]);
            let has_room =
                |used: &[usize], kernel: usize, ranks: usize| used[kernel] + ranks <= self.cpus[kernel].len().max(2);
            let fits = |used: &[usize]| match first == second {
                true => has_room(used, first, 2),
                false => has_room(used, first, 1) && has_room(used, second, 1),
            };
            let index = parts.iter().position(|(used, _)| fits(used)).unwrap_or_else(|| {
                parts.push((vec![0; self.cpus.len()], Vec::new()));
                parts.len() - 1
            });
            let (used, pairs) = &mut parts[index];
            pair.iter().for_each(|&rank| used[self.of_rank[rank]] += 1);
            pairs.push(pair);
        }
        parts.into_iter().map(|(_, pairs)| pairs).collect()
    }

    /// The CPU that each of these ranks, which measure at once, has alone; none for a rank that has its kernel for itself, and none where
    /// there are too few.
    pub fn assign_cpus(&self, pairs: &[Pair]) -> BTreeMap<usize, u32> {
        let mut ranks_of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        pairs.iter().flatten().for_each(|&rank| ranks_of.entry(self.of_rank[rank]).or_default().push(rank));
        let shared =
            ranks_of.into_iter().filter(|(kernel, ranks)| (2..=self.cpus[*kernel].len()).contains(&ranks.len()));
        shared.flat_map(|(kernel, ranks)| ranks.into_iter().zip(self.cpus[kernel].iter().copied())).collect()
    }

    /// Whether a kernel has more ranks than it can have measure at once.
    pub fn is_overloaded(&self) -> bool {
        let ranks_of = |kernel: usize| self.of_rank.iter().filter(|&&of_rank| of_rank == kernel).count();
        self.cpus.iter().enumerate().any(|(kernel, cpus)| ranks_of(kernel) > cpus.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tournament_of_four_is_three_rounds() {
        assert_eq!(tournament(4), [[[0, 3], [1, 2]], [[1, 3], [0, 2]], [[2, 3], [0, 1]]]);
        assert_eq!(tournament(2), [[[0, 1]]]);
        assert_eq!(tournament(1), [[[0_usize; 2]; 0]]);
        assert_eq!(tournament(0), Vec::<Vec<Pair>>::new());
    }

    #[test]
    fn every_pair_measures_once_in_disjoint_rounds() {
        for ranks in 2..40 {
            let rounds = tournament(ranks);
            assert_eq!(rounds.len(), if ranks % 2 == 0 { ranks - 1 } else { ranks }, "{ranks} ranks");
            let mut pairs = BTreeSet::new();
            for round in &rounds {
                let mut busy = BTreeSet::new();
                for &pair in round {
                    assert!(pair[0] < pair[1] && pair[1] < ranks, "{pair:?} of {ranks}");
                    assert!(busy.insert(pair[0]) && busy.insert(pair[1]), "{round:?} of {ranks}");
                    assert!(pairs.insert(pair), "{pair:?} of {ranks} twice");
                }
                assert_eq!(round.len(), ranks / 2);
            }
            assert_eq!(pairs.len(), ranks * (ranks - 1) / 2);
        }
    }

    #[test]
    fn bisection_crosses_the_middle() {
        assert_eq!(bisection(6), [[0, 3], [1, 4], [2, 5]]);
        assert_eq!(bisection(7), [[0, 3], [1, 4], [2, 5]]);
        assert_eq!(bisection(1), [[0_usize; 2]; 0]);
    }

    #[test]
    fn ranks_of_one_kernel_take_turns_by_its_cpus() {
        let round = [[0, 7], [1, 6], [2, 5], [3, 4]];
        let shared = |cpus| Kernels { of_rank: vec![0; 8], cpus: vec![(0..cpus).collect()] };
        assert_eq!(shared(2).divide(&round), [[[0, 7]], [[1, 6]], [[2, 5]], [[3, 4]]]);
        assert_eq!(shared(1).divide(&round).len(), 4);
        assert_eq!(shared(4).divide(&round), [[[0, 7], [1, 6]], [[2, 5], [3, 4]]]);
        let own = Kernels { of_rank: (0..8).collect(), cpus: vec![vec![0]; 8] };
        assert_eq!(own.divide(&round), [round]);
        assert!(shared(2).is_overloaded() && !shared(8).is_overloaded() && !own.is_overloaded());
        // Two hosts of one kernel beside six of their own: only a pair of both, or two pairs with one of each, need more than one CPU.
        let mixed = Kernels {
            of_rank: vec![0, 0, 1, 2, 3, 4, 5, 6],
            cpus: [vec![3, 5]].into_iter().chain(vec![vec![0]; 6]).collect(),
        };
        assert_eq!(mixed.divide(&round).len(), 1);
    }

    #[test]
    fn ranks_of_one_kernel_get_cpus_of_their_own() {
        let kernels = Kernels { of_rank: vec![0, 0, 1, 2], cpus: vec![vec![3, 5], vec![0], vec![0]] };
        assert_eq!(kernels.assign_cpus(&[[0, 1], [2, 3]]), BTreeMap::from([(0, 3), (1, 5)]));
        assert_eq!(kernels.assign_cpus(&[[0, 2]]), BTreeMap::new());
        let few = Kernels { of_rank: vec![0, 0], cpus: vec![vec![3]] };
        assert_eq!(few.assign_cpus(&[[0, 1]]), BTreeMap::new());
    }
}
