//! What a process has used, with its threads and the processes that it has started.

use std::collections::{BTreeMap, VecDeque};

use crate::memory::kibibytes;
use crate::root::{FileRoot, value_of_key};
use kelvin_core::resources::ProcessStats;
use kelvin_sys::procfs::{ProcessStat, SchedStat};

use kelvin_sys::usage::ticks_to_nanoseconds;

/// Most processes, and most threads of each, that are looked at one by one, so that a look at a server with thousands of them still
/// has an end.
const MAX_PROCESSES: usize = 1024;
const MAX_THREADS: usize = 1024;
/// How often it is begun anew because a child was reaped meanwhile, whose time would be counted twice or not at all.
const MAX_READ_TRIES: usize = 4;

/// A process and its descendants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProcessTree(Vec<TreeProcess>);

#[derive(Debug, PartialEq, Eq)]
struct TreeProcess {
    id: u32,
    stat: ProcessStat,
    threads: Vec<u32>,
}

impl ProcessTree {
    /// A process, with what it has started if that counts; `None` if it is not there.
    pub(crate) fn read(root: FileRoot<'_>, process: u32, with_descendants: bool) -> Option<Self> {
        if !with_descendants {
            let stat = ProcessStat { children_user: 0, children_system: 0, ..stat(root, process)? };
            return Some(Self(vec![TreeProcess {
                id: process,
                stat,
                threads: thread_ids(root, process).take(MAX_THREADS).collect(),
            }]));
        }
        let mut tree = None;
        for _ in 0..MAX_READ_TRIES {
            tree = Self::read_once(root, process);
            let first = tree.as_ref()?.0[0].stat;
            // Those of a child are its parent's once it is reaped.
            let reaped_times = |stat: ProcessStat| (stat.children_user, stat.children_system);
            if stat(root, process).is_none_or(|current| reaped_times(current) == reaped_times(first)) {
                break;
            }
        }
        tree
    }

    fn read_once(root: FileRoot<'_>, process: u32) -> Option<Self> {
        let (mut members, mut next) = (Vec::new(), VecDeque::from([process]));
        while let Some(id) = next.pop_front().filter(|_| members.len() < MAX_PROCESSES) {
            let Some(stat) = stat(root, id) else { continue };
            let threads: Vec<u32> = thread_ids(root, id).take(MAX_THREADS).collect();
            next.extend(threads.iter().flat_map(|thread| children(root, id, *thread)));
            members.push(TreeProcess { id, stat, threads });
        }
        (!members.is_empty()).then_some(Self(members))
    }

    /// Their numbers, the first one's first.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.0.iter().map(|member| member.id).collect()
    }

    /// What they have used.
    pub(crate) fn usage(&self, root: FileRoot<'_>, threads: &mut ThreadTotals) -> ProcessStats {
        let stats = || self.0.iter().map(|member| member.stat);
        // Of a child that was waited for the time is among its parent's.
        let total = |counters: fn(ProcessStat) -> [u64; 2]| stats().flat_map(counters).fold(0, u64::saturating_add);
        let user = total(|stat| [stat.user, stat.children_user]);
        let system = total(|stat| [stat.system, stat.children_system]);
        let schedules = self.0.iter().flat_map(|member| member.schedules(root)).collect();
        let schedule = threads.update(schedules);
        let count = total(|stat| [stat.threads, 0]);
        ProcessStats {
            user: ticks_to_nanoseconds(user),
            system: ticks_to_nanoseconds(system),
            thread_cpu: threads.cpu_by_thread(),
            without_cpu: schedule.map(|schedule| schedule.run_queue_wait as f64),
            switches: schedule.map(|schedule| schedule.switches),
            memory: self.0.iter().fold(0, |sum: u64, member| sum.saturating_add(member.memory(root))),
            threads: u32::try_from(count).unwrap_or(u32::MAX),
            processes: self.0.len() as u32,
            read_bytes: self.io_bytes(root, "read_bytes"),
            written_bytes: self.io_bytes(root, "write_bytes"),
        }
    }

    /// Threads in uninterruptible sleep, of at most this many of each process.
    pub(crate) fn blocked(&self, root: FileRoot<'_>, max_threads: usize) -> u32 {
        self.0.iter().map(|member| member.blocked(root, max_threads)).sum()
    }

    /// Bytes by a counter of proc_pid_io(5), which also counts those of ended threads and of children that were waited for.
    fn io_bytes(&self, root: FileRoot<'_>, counter: &str) -> Option<u64> {
        let bytes =
            |member: &TreeProcess| value_of_key(&root.text(&member.file("io"))?, counter, ':')?.parse::<u64>().ok();
        let descendants = self.0[1..].iter().filter_map(bytes);
        bytes(&self.0[0]).map(|first| descendants.fold(first, u64::saturating_add))
    }
}

impl TreeProcess {
    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.id)
    }

    fn memory(&self, root: FileRoot<'_>) -> u64 {
        let status = root.text(&self.file("status")).unwrap_or_default();
        let bytes = |key: &str| kibibytes(&status, key).unwrap_or(0);
        bytes("RssAnon").saturating_add(bytes("RssShmem"))
    }

    /// Its threads in uninterruptible sleep.
    fn blocked(&self, root: FileRoot<'_>, max_threads: usize) -> u32 {
        let stat = |thread: &u32| root.text(&self.file(&format!("task/{thread}/stat")));
        let is_blocked = |text: &String| ProcessStat::parse(text).is_some_and(|stat| stat.state == 'D');
        self.threads.iter().take(max_threads).filter_map(stat).filter(is_blocked).count() as u32
    }

    fn schedules(&self, root: FileRoot<'_>) -> impl Iterator<Item = (u32, SchedStat)> {
        let schedule = move |thread: &u32| {
            Some((*thread, SchedStat::parse(&root.text(&self.file(&format!("task/{thread}/schedstat")))?)?))
        };
        self.threads.iter().filter_map(schedule)
    }
}

fn stat(root: FileRoot<'_>, process: u32) -> Option<ProcessStat> {
    ProcessStat::parse(&root.text(&format!("/proc/{process}/stat"))?)
}

/// The threads of a process by their numbers.
fn thread_ids(root: FileRoot<'_>, process: u32) -> impl Iterator<Item = u32> {
    root.names(&format!("/proc/{process}/task")).into_iter().filter_map(|name| name.parse().ok())
}

/// The processes that a thread has started.
fn children(root: FileRoot<'_>, process: u32, thread: u32) -> Vec<u32> {
    let text = root.text(&format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
    text.split_ascii_whitespace().map_while(|word| word.parse().ok()).take(MAX_PROCESSES).collect()
}

/// The threads of a process as they were found last, and what ended ones had used when they were last seen: nobody else keeps that.
#[derive(Debug, Default)]
pub(crate) struct ThreadTotals {
    current: BTreeMap<u32, SchedStat>,
    ended_total: SchedStat,
}

impl ThreadTotals {
    /// Takes what is found now: all together; `None` where the kernel does not count it.
    fn update(&mut self, current: BTreeMap<u32, SchedStat>) -> Option<SchedStat> {
        let before = std::mem::replace(&mut self.current, current);
        // A number that has used less than before is another thread's now.
        let has_ended =
            |(thread, last): &(u32, SchedStat)| self.current.get(thread).is_none_or(|stat| stat.cpu < last.cpu);
        let ended_threads = before.into_iter().filter(has_ended);
        self.ended_total = ended_threads.fold(self.ended_total, |sum, (_, last)| sum.plus(last));
        let is_counted = !self.current.is_empty() || self.ended_total != SchedStat::default();
        is_counted.then(|| self.current.values().fold(self.ended_total, |sum, current| sum.plus(*current)))
    }

    fn cpu_by_thread(&self) -> BTreeMap<u32, f64> {
        self.current.iter().map(|(thread, schedule)| (*thread, schedule.cpu as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::FixtureTree;
    use crate::topology::allowed_cpus;

    fn schedule(cpu: u64, without_cpu: u64, switches: u64) -> SchedStat {
        SchedStat { cpu, run_queue_wait: without_cpu, switches }
    }

    #[test]
    fn ended_thread_usage_is_kept() {
        let mut threads = ThreadTotals::default();
        assert_eq!(threads.update(BTreeMap::new()), None);
        let first = BTreeMap::from([(1, schedule(10, 1, 1)), (2, schedule(20, 2, 2))]);
        assert_eq!(threads.update(first), Some(schedule(30, 3, 3)));
        // The first one goes on, the second has ended, and a third was begun.
        let second = BTreeMap::from([(1, schedule(11, 1, 1)), (3, schedule(5, 5, 5))]);
        assert_eq!(threads.update(second), Some(schedule(36, 8, 8)));
        // Its number is another's.
        assert_eq!(threads.update(BTreeMap::from([(3, schedule(1, 0, 0))])), Some(schedule(37, 8, 8)));
        assert_eq!(threads.cpu_by_thread(), BTreeMap::from([(3, 1.0)]));
        assert_eq!(threads.update(BTreeMap::new()), Some(schedule(37, 8, 8)));
    }

    #[test]
    fn uninterruptible_threads_of_children_are_counted() {
        let tree = FixtureTree::default();
        for (process, thread, state) in [(9, 9, 'D'), (9, 12, 'S'), (9, 13, 'D'), (10, 10, 'D')] {
            let stat = format!("{thread} (D) D) {state} 1 1 1 0 -1 4194560 1 2 3 4 1 0 0 0 20 0 1 0 12345");
            tree.fill(&format!("proc/{process}/task/{thread}/stat"), &stat);
            tree.fill(&format!("proc/{process}/stat"), &stat);
        }
        tree.fill("proc/9/task/9/children", "10 ");
        let root = FileRoot::new(tree.path());
        let blocked = |scope, max_threads| ProcessTree::read(root, 9, scope).unwrap().blocked(root, max_threads);
        assert_eq!([(true, 99), (false, 99)].map(|(scope, max_threads)| blocked(scope, max_threads)), [3, 2]);
        assert!(blocked(false, 1) <= 1);
    }

    #[test]
    fn tree_includes_descendants_and_ended_usage() {
        let tree = FixtureTree::default();
        let stat = |user, children_user, threads| {
            format!("9 (a b) S 1 1 1 0 -1 4194560 1 2 3 4 {user} 0 {children_user} 0 20 0 {threads} 0 12345")
        };
        tree.fill("proc/9/stat", stat(100, 7, 2));
        tree.fill("proc/9/task/9/children", "10 \n");
        tree.fill("proc/9/task/12/children", "");
        tree.fill("proc/9/task/9/schedstat", "1000 10 1");
        tree.fill("proc/9/task/12/schedstat", "2000 20 2");
        tree.fill(
            "proc/9/status",
            "Name:\ta b\nRssAnon:\t      40 kB\nRssFile:\t 9000 kB\nRssShmem:\t 2 kB\nCpus_allowed_list:\t0-2,7\n",
        );
        tree.fill("proc/9/io", "rchar: 5\nread_bytes: 4096\nwrite_bytes: 8192\n");
        tree.fill("proc/10/stat", stat(10, 0, 1));
        tree.fill("proc/10/task/10/children", "11");
        tree.fill("proc/10/task/10/schedstat", "4000 40 4");
        tree.fill("proc/10/io", "rchar: 5\nread_bytes: 1\nwrite_bytes: 2\n");
        tree.fill("proc/11/stat", stat(1, 0, 1));
        let root = FileRoot::new(tree.path());
        let usage = ProcessTree::read(root, 9, true).unwrap().usage(root, &mut ThreadTotals::default());
        let expected = ProcessStats {
            user: ticks_to_nanoseconds(118),
            system: 0.0,
            thread_cpu: BTreeMap::from([(9, 1000.0), (10, 4000.0), (12, 2000.0)]),
            without_cpu: Some(70.0),
            switches: Some(7),
            memory: 42 << 10,
            threads: 4,
            processes: 3,
            read_bytes: Some(4097),
            written_bytes: Some(8194),
        };
        assert_eq!(usage, expected);
        assert_eq!(allowed_cpus(root, Some(9)).get().unwrap()[..], [0, 1, 2, 7]);
        // The list names all that the kernel can have; CPU 2 is not there.
        tree.fill("sys/devices/system/cpu/online", "0-1,7");
        assert_eq!(allowed_cpus(root, Some(9)).get().unwrap()[..], [0, 1, 7]);
        assert_eq!(ProcessTree::read(root, 8, true), None);
        let process_usage = ProcessTree::read(root, 9, false).unwrap().usage(root, &mut ThreadTotals::default());
        let threads = BTreeMap::from([(9, 1000.0), (12, 2000.0)]);
        assert_eq!(
            (process_usage.user, process_usage.thread_cpu, process_usage.processes),
            (ticks_to_nanoseconds(100), threads, 1)
        );
    }
}
