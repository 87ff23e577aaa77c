//! What to change where the generator was the limit.

use kelvin_core::load::{GeneratorLimit, GeneratorStats, GeneratorThread, LoadResult, OfferedLoad};

use super::placement::GeneratorPlacement;

/// Share of the time that a late generator worked from which on more threads may help: below it, it was late for another reason.
const MIN_BUSY_SHARE: f64 = 0.5;

/// A sentence on how the generator could ask for more, where it was the limit and that is known: twice the threads, as far as there are CPUs
/// and users for them.
pub fn generator_advice(load: &LoadResult, placement: &GeneratorPlacement) -> Option<String> {
    let GeneratorStats { limit, threads, busy, .. } = &load.generator;
    let is_working = match limit.as_ref()? {
        GeneratorLimit::Busy { thread, .. } => {
            let busiest = threads.get((*thread as usize).saturating_sub(1));
            !busiest.is_some_and(has_waited_longer)
        }
        GeneratorLimit::Late { .. } if busy.is_some_and(|share| share >= MIN_BUSY_SHARE) => true,
        GeneratorLimit::Late { .. } => return None,
    };
    if !is_working {
        return Some("Other work has its CPU: name another by --cpu, or load the server from another host.".into());
    }
    let threads = threads.len().max(1);
    let max_by_cpus = placement.max_threads();
    let max_by_users = match load.offered {
        OfferedLoad::Users { users, .. } => users as usize,
        OfferedLoad::Rate { .. } => usize::MAX,
    };
    let wanted = (2 * threads).min(max_by_cpus).min(max_by_users);
    Some(match placement {
        _ if max_by_cpus <= threads => {
            "This host has no CPU for another thread: load the server from another host.".into()
        }
        _ if max_by_users <= threads => "Each thread needs a user: give more --users and --threads.".into(),
        GeneratorPlacement::Requested { .. } => format!("Name {wanted} CPUs by --cpu."),
        _ => format!("Give --threads {wanted}."),
    })
}

/// Whether a thread waited for a CPU for longer than it worked.
fn has_waited_longer(thread: &GeneratorThread) -> bool {
    thread.off_cpu.zip(thread.cpu).is_some_and(|(waited, worked)| waited > worked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load of this many users on threads of which the last worked and waited for these seconds of ten.
    fn limited_load(users: u32, threads: usize, (cpu, off_cpu): (f64, f64)) -> LoadResult {
        let thread = GeneratorThread { cpu: Some(cpu), off_cpu: Some(off_cpu), ..GeneratorThread::default() };
        let share = (cpu + off_cpu) / 10.0;
        let generator = GeneratorStats {
            threads: vec![thread; threads],
            busy: Some(share),
            limit: Some(GeneratorLimit::Busy { share, thread: threads as u32 }),
            ..GeneratorStats::default()
        };
        let offered = OfferedLoad::Users { users, think: 0.0 };
        LoadResult { seconds: 10.0, offered, generator, ..LoadResult::empty("http://a/") }
    }

    fn advice(load: &LoadResult, placement: &GeneratorPlacement) -> String {
        generator_advice(load, placement).unwrap()
    }

    #[test]
    fn twice_the_threads_are_advised_as_far_as_there_are_cpus_and_users() {
        let anywhere = GeneratorPlacement::Anywhere { allowed: 8 };
        let advice_for = |users, threads| advice(&limited_load(users, threads, (9.6, 0.1)), &anywhere);
        assert_eq!(advice_for(64, 1), "Give --threads 2.");
        assert_eq!(advice_for(64, 6), "Give --threads 8.");
        assert_eq!(advice_for(3, 2), "Give --threads 3.");
        assert_eq!(advice_for(2, 2), "Each thread needs a user: give more --users and --threads.");
        let no_cpu = "This host has no CPU for another thread: load the server from another host.";
        assert_eq!(advice_for(64, 8), no_cpu);
        let mut at_rate = limited_load(1, 1, (9.6, 0.1));
        at_rate.offered = OfferedLoad::Rate { rate: 1e6, due: 1e6, delayed: 0 };
        assert_eq!(advice(&at_rate, &anywhere), "Give --threads 2.");
        // A server on this host keeps a CPU.
        let separate = |server_cpus: Vec<u32>| GeneratorPlacement::SeparateCpus { cpus: vec![9], server_cpus };
        let busy = limited_load(64, 1, (9.6, 0.1));
        assert_eq!(advice(&busy, &separate(vec![0, 1, 2])), "Give --threads 2.");
        assert_eq!(advice(&busy, &separate(vec![0])), no_cpu);
        let requested = GeneratorPlacement::Requested { cpus: vec![3], allowed: 4 };
        assert_eq!(advice(&busy, &requested), "Name 2 CPUs by --cpu.");
    }

    #[test]
    fn threads_help_only_where_a_cpu_was_used() {
        let anywhere = GeneratorPlacement::Anywhere { allowed: 8 };
        let without_cpu = limited_load(64, 1, (3.0, 6.5));
        assert!(advice(&without_cpu, &anywhere).starts_with("Other work has its CPU: "));
        let late = |busy| {
            let mut load = limited_load(64, 1, (10.0 * busy, 0.0));
            load.generator.limit = Some(GeneratorLimit::Late { share: 0.1 });
            generator_advice(&load, &anywhere)
        };
        assert_eq!((late(0.1), late(0.8).as_deref()), (None, Some("Give --threads 2.")));
        assert_eq!(generator_advice(&LoadResult::empty("http://a/"), &anywhere), None);
    }
}
