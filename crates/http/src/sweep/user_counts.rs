//! Which numbers of users are visited, and in which order.

use kelvin_stats::Random;

/// The numbers of users that are visited, where none are given, go to at least this.
const MIN_TOP_USERS: u64 = 20;
/// A sweep goes on to this many times the knee that is expected: what more users bring is seen only beyond it.
const KNEE_MULTIPLE: u64 = 3;
/// Numbers of users of a sweep that show a knee, at least.
const MIN_COUNTS: usize = 4;
/// No more users are visited than this, unless given: each has a connection.
const MAX_USERS: u64 = 1000;
/// Visits to a server with more workers: their errors are those of all visits to as many users.
pub(crate) const WORKER_TEST_STEPS: u32 = 3;
/// The first numbers.
const FIRST_COUNTS: [u64; 7] = [1, 2, 3, 4, 6, 8, 10];
/// Each step after them adds this part, a fifth if there is time for this many numbers.
const STEP_DIVISORS: [u64; 5] = [5, 4, 3, 2, 1];

/// The numbers of users of a sweep whose knee is expected at this many; no more than there is time for, where wider steps allow that.
pub(crate) fn user_grid(knee: u64, max_count: usize) -> Vec<u64> {
    let max_users = (KNEE_MULTIPLE * knee).clamp(MIN_TOP_USERS, MAX_USERS);
    let mut users = Vec::new();
    for divisor in STEP_DIVISORS {
        users = FIRST_COUNTS.to_vec();
        let mut last = users[users.len() - 1];
        while last < max_users {
            last = (last + (last / divisor).max(2)).min(max_users.max(last + 1));
            users.push(last);
        }
        if users.len() <= max_count {
            break;
        }
    }
    users
}

/// The place of the number of users that a sweep misses least: the largest while another one is as far beyond the expected knee as the
/// sweep is to go; else the one whose neighbours are nearest to each other, but for the fewest, the most, and the one at the knee. `None`
/// where no other is left.
pub(crate) fn least_missed(users: &[u64], knee: u64) -> Option<usize> {
    let last = users.len().checked_sub(1)?;
    let is_beyond_knee = |&&users: &&u64| users >= KNEE_MULTIPLE * knee;
    if users.iter().filter(is_beyond_knee).count() > 1 && last >= MIN_COUNTS {
        return Some(last);
    }
    let knee_index = users.iter().enumerate().min_by_key(|(_, users)| users.abs_diff(knee)).map(|(index, _)| index);
    let gap = |&index: &usize| users[index + 1] as f64 / users[index - 1] as f64;
    (1..last).filter(|index| Some(*index) != knee_index).min_by(|first, second| gap(first).total_cmp(&gap(second)))
}

/// One visit: which sweep, how many users, and the number of the visit to these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedStep {
    pub sweep: usize,
    pub users: u64,
    pub repetition: u32,
    /// Whether it is to the server with more workers.
    pub has_more_workers: bool,
}

/// The order of all visits: passes over all numbers of users of all sweeps, each in a random order of its own, so that what changes
/// over time falls on all alike; and at the end a return to the fewest users, which shows whether the server is what it was.
/// Before it are the visits to servers with more workers, for each sweep that has any.
pub(crate) fn step_order(sweeps: &[Vec<u64>], tested: &[bool], visits: u32, seed: u64) -> Vec<PlannedStep> {
    let (mut random, mut order) = (Random::new(seed), Vec::new());
    for repetition in 0..visits {
        let mut pass = Vec::new();
        for (sweep, users) in sweeps.iter().enumerate() {
            pass.extend(users.iter().map(|&users| PlannedStep { sweep, users, repetition, has_more_workers: false }));
        }
        random.shuffle(&mut pass);
        order.extend(pass);
    }
    for (sweep, users) in sweeps.iter().enumerate().filter(|(sweep, _)| tested.get(*sweep) == Some(&true)) {
        let Some(&users) = users.iter().max() else { continue };
        let test = |repetition| PlannedStep { sweep, users, repetition, has_more_workers: true };
        order.extend((0..WORKER_TEST_STEPS).map(test));
    }
    for (sweep, users) in sweeps.iter().enumerate() {
        let Some(&users) = users.iter().min() else { continue };
        order.push(PlannedStep { sweep, users, repetition: visits, has_more_workers: false });
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sweep_covers_three_knees_and_twenty_users() {
        assert_eq!(user_grid(2, 12), [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 19, 20]);
        assert_eq!(*user_grid(10, 100).last().unwrap(), 30);
        assert_eq!(*user_grid(100_000, 100).last().unwrap(), 1000);
        for (knee, max_count) in (1..400).flat_map(|knee| [(knee, 0), (knee, 16), (knee, 100)]) {
            let users = user_grid(knee, max_count);
            assert!(users.windows(2).all(|pair| pair[0] < pair[1]), "{knee}");
            assert_eq!(*users.last().unwrap(), (3 * knee).clamp(20, 1000));
        }
    }

    #[test]
    fn grid_step_follows_time() {
        let grids = [user_grid(40, 22), user_grid(40, 15), user_grid(40, 12), user_grid(40, 1)];
        assert_eq!(grids.clone().map(|users| users.len()), [22, 14, 11, 11]);
        assert_eq!(grids[2], [1, 2, 3, 4, 6, 8, 10, 20, 40, 80, 120]);
    }

    /// What is left of a sweep after this many numbers of users less.
    fn drop_counts(mut users: Vec<u64>, knee: u64, fewer: usize) -> Vec<u64> {
        for _ in 0..fewer {
            let Some(index) = least_missed(&users, knee) else { break };
            users.remove(index);
        }
        users
    }

    #[test]
    fn shortened_sweep_still_passes_knee() {
        let users = user_grid(1, 12);
        assert_eq!(users, [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 19, 20]);
        assert_eq!(drop_counts(users.clone(), 1, 8), [1, 2, 3, 4]);
        assert_eq!(drop_counts(users.clone(), 2, 7), [1, 2, 3, 4, 6]);
        assert_eq!(drop_counts(users.clone(), 2, 8), [1, 2, 4, 6]);
        assert_eq!(drop_counts(users, 2, 100), [1, 2, 6]);
        assert_eq!(drop_counts(vec![1, 2, 4, 8, 16, 32], 8, 2), [1, 4, 8, 32]);
        assert_eq!(drop_counts(vec![5], 1, 100), [5]);
        assert_eq!(drop_counts(vec![1, 40], 1, 100), [1, 40]);
    }

    #[test]
    fn every_user_count_runs_equally_often() {
        let sweeps = [vec![1, 2, 5], vec![3, 4]];
        let order = step_order(&sweeps, &[], 3, 7);
        assert_eq!(order.len(), 3 * 5 + 2);
        let stop = |sweep, users| PlannedStep { sweep, users, repetition: 3, has_more_workers: false };
        let distinct: BTreeSet<(usize, u64, u32)> =
            order.iter().map(|step| (step.sweep, step.users, step.repetition)).collect();
        assert_eq!(distinct.len(), order.len());
        assert!(order[..5].iter().all(|step| step.repetition == 0), "a pass is whole before the next begins");
        assert_eq!(order[15..], [stop(0, 1), stop(1, 3)]);
        assert_ne!(order[..5].iter().map(|step| step.users).collect::<Vec<_>>(), [1, 2, 5, 3, 4], "at random");
    }

    #[test]
    fn worker_test_precedes_final_step() {
        let order = step_order(&[vec![1, 2, 5], vec![3, 4]], &[true, false], 3, 7);
        let tests: Vec<&PlannedStep> = order.iter().filter(|stop| stop.has_more_workers).collect();
        let stop = |visit| PlannedStep { sweep: 0, users: 5, repetition: visit, has_more_workers: true };
        assert_eq!(tests, [&stop(0), &stop(1), &stop(2)]);
        assert_eq!(order[15..18], [stop(0), stop(1), stop(2)]);
        assert!(!order[18].has_more_workers && order.len() == 20);
    }
}
