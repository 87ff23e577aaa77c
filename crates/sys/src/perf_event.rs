//! Counters of the processor and of the kernel, for what the calling thread does (perf_event_open).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::{Error, Result, check};

/// An event by its numbers in the interface of the kernel (linux/perf_event.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCode {
    event_type: u32,
    config: u64,
}

const TYPE_SOFTWARE: u32 = 1;

impl EventCode {
    /// Page faults, counted by the kernel.
    pub const PAGE_FAULTS: Self = Self { event_type: TYPE_SOFTWARE, config: 2 };

    /// The event of this type and number within it.
    pub const fn new((event_type, config): (u32, u64)) -> Self {
        Self { event_type, config }
    }
}

/// The first 64 bytes of `struct perf_event_attr`, of which kernels since 2.6.32 know the size.
#[repr(C)]
#[derive(Debug, Default)]
struct EventAttributes {
    event_type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const FLAG_DISABLED: u64 = 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FORMAT_TOTAL_TIME_ENABLED: u64 = 1;
const FORMAT_TOTAL_TIME_RUNNING: u64 = 1 << 1;
const FORMAT_ID: u64 = 1 << 2;
const FORMAT_GROUP: u64 = 1 << 3;
/// `PERF_FLAG_FD_CLOEXEC`.
const FLAG_CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// Dependent multiplies of a trial of the counters, some microseconds.
const TRIAL_MULTIPLIES: u64 = 1000;
/// Requests of ioctl on a group, and the argument that makes them those of all its members.
const IOCTL_ENABLE: libc::c_ulong = 0x2400;
const IOCTL_DISABLE: libc::c_ulong = 0x2401;
const IOCTL_RESET: libc::c_ulong = 0x2403;
/// The request of an event's number, `_IOR('$', 7, __u64 *)`.
const IOCTL_ID: libc::c_ulong = 2 << 30 | (size_of::<*const u64>() as libc::c_ulong) << 16 | 0x2407;
const IOCTL_FLAG_GROUP: libc::c_ulong = 1;

/// Whether this error of [`CounterGroup::open`] says that the kernel forbids counters, rather than has none.
pub fn is_forbidden(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// Events that are counted at the same time, for the calling thread alone; in the kernel too where this is allowed.
#[derive(Debug)]
pub struct CounterGroup {
    source: CounterSource,
    members: Vec<GroupMember>,
    counts_kernel: bool,
}

/// Where counts come from.
#[derive(Debug)]
enum CounterSource {
    /// The kernel. The first event leads the others.
    Kernel(Vec<OwnedFd>),
    /// Recorded reads, each of which is read once.
    Recorded(RefCell<VecDeque<Vec<u64>>>),
}

/// An event of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The event.
    pub event: EventCode,
    /// The number by which the kernel names it in what it counts.
    pub id: u64,
}

/// What a group counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterValues {
    /// Each event with its count.
    pub counts: Vec<(EventCode, u64)>,
    /// Nanoseconds in which the group was to count.
    pub enabled_nanoseconds: u64,
    /// Nanoseconds in which it did: less where it shared the counters with others, so that its counts are of a part.
    pub running_nanoseconds: u64,
}

impl CounterValues {
    /// The counts, if the group had the counters all the time: what multiplexing leaves is an estimate.
    pub fn complete_counts(self) -> Option<Vec<(EventCode, u64)>> {
        let is_complete = self.running_nanoseconds > 0 && self.running_nanoseconds == self.enabled_nanoseconds;
        is_complete.then_some(self.counts)
    }

    /// The values as the kernel writes them (`read_format` in linux/perf_event.h, with `PERF_FORMAT_GROUP`, `PERF_FORMAT_ID` and both
    /// times): the number of events, the times, and for each event its count and id. `None` unless each member has one count.
    pub fn parse(words: &[u64], members: &[GroupMember]) -> Option<Self> {
        let (&[count, enabled_nanoseconds, running_nanoseconds], values) = words.split_first_chunk::<3>()?;
        let (values, rest) = values.as_chunks::<2>();
        let is_whole = usize::try_from(count) == Ok(members.len()) && values.len() == members.len() && rest.is_empty();
        let count_of = |member: &GroupMember| {
            let of_member = |[_, id]: &&[u64; 2]| *id == member.id;
            values.iter().find(of_member).map(|&[count, _]| (member.event, count))
        };
        let counts = members.iter().map(count_of).collect::<Option<Vec<_>>>().filter(|_| is_whole)?;
        Some(Self { counts, enabled_nanoseconds, running_nanoseconds })
    }
}

impl CounterGroup {
    /// A group that is not counting yet, of those of these events that the processor has.
    ///
    /// # Errors
    /// `ENOENT` or `EOPNOTSUPP` of a machine without such counters, as most virtual machines are; `EACCES` or `EPERM` where
    /// `kernel.perf_event_paranoid` or a filter of system calls forbids them; `ENOSYS` of a kernel without them.
    pub fn open(events: &[EventCode], cpu: u32) -> Result<Self> {
        Self::open_where(events, cpu, true).or_else(|error| match is_forbidden(&error) {
            true => Self::open_where(events, cpu, false),
            false => Err(error),
        })
    }

    fn open_where(events: &[EventCode], cpu: u32, counts_kernel: bool) -> Result<Self> {
        let processor_type = processor_type_of(cpu);
        let (mut descriptors, mut members): (Vec<OwnedFd>, Vec<GroupMember>) = Default::default();
        let mut first_error = None;
        for &event in events {
            let leader = descriptors.first().map_or(-1, OwnedFd::as_raw_fd);
            match open_event(event, processor_type, leader, counts_kernel) {
                Ok(descriptor) => {
                    members.push(GroupMember { event, id: id_of(&descriptor)? });
                    descriptors.push(descriptor);
                }
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        match first_error {
            Some(error) if members.is_empty() => return Err(error),
            _ => {}
        }
        let group = Self { source: CounterSource::Kernel(descriptors), members, counts_kernel };
        // A processor of several kinds counts only on those of this one, where the calling thread may not be now.
        if processor_type.is_some() { Ok(group) } else { group.with_free_counters() }
    }

    /// A group of recorded reads of these events, which counts the kernel's work too.
    pub fn recorded(members: Vec<GroupMember>, reads: impl IntoIterator<Item = Vec<u64>>) -> Self {
        let reads = RefCell::new(reads.into_iter().collect());
        Self { source: CounterSource::Recorded(reads), members, counts_kernel: true }
    }

    /// The group without its last members for which there is no counter: others, such as the kernel's watchdog, may hold some that the whole
    /// group would need.
    fn with_free_counters(mut self) -> Result<Self> {
        while self.members.len() > 1 && !self.has_counters()? {
            self.members.pop();
            if let CounterSource::Kernel(descriptors) = &mut self.source {
                descriptors.pop();
            }
        }
        Ok(self)
    }

    /// Whether there is a counter for each event, now.
    fn has_counters(&self) -> Result<bool> {
        let (_, values) = self.count(|| crate::kernels::chain_multiply(TRIAL_MULTIPLIES))?;
        Ok(values.running_nanoseconds > 0)
    }

    /// The events that are counted.
    pub fn events(&self) -> impl Iterator<Item = EventCode> {
        self.members.iter().map(|member| member.event)
    }

    /// Whether what the kernel does for the thread is counted too.
    pub fn counts_kernel(&self) -> bool {
        self.counts_kernel
    }

    /// Counts from zero while `work` runs.
    ///
    /// # Errors
    /// Those of the kernel's interface.
    pub fn count<R>(&self, work: impl FnOnce() -> R) -> Result<(R, CounterValues)> {
        self.control(IOCTL_RESET)?;
        // The times go on from earlier ones: a reset sets the counts to zero, and not them.
        let before = self.read()?;
        self.control(IOCTL_ENABLE)?;
        let result = work();
        self.control(IOCTL_DISABLE)?;
        let mut values = self.read()?;
        values.enabled_nanoseconds = values.enabled_nanoseconds.saturating_sub(before.enabled_nanoseconds);
        values.running_nanoseconds = values.running_nanoseconds.saturating_sub(before.running_nanoseconds);
        Ok((result, values))
    }

    fn control(&self, request: libc::c_ulong) -> Result<()> {
        let CounterSource::Kernel(descriptors) = &self.source else { return Ok(()) };
        // SAFETY: the descriptor is open, and these requests take a number.
        check(unsafe { libc::ioctl(leader_of(descriptors)?, request as _, IOCTL_FLAG_GROUP) }).map(drop)
    }

    fn read(&self) -> Result<CounterValues> {
        let words = match &self.source {
            CounterSource::Kernel(descriptors) => read_group(leader_of(descriptors)?, self.members.len())?,
            CounterSource::Recorded(reads) => reads.borrow_mut().pop_front().unwrap_or_default(),
        };
        let values = CounterValues::parse(&words, &self.members);
        values.ok_or_else(|| Error::other("the kernel gave no count for each event of the group"))
    }
}

fn leader_of(descriptors: &[OwnedFd]) -> Result<libc::c_int> {
    descriptors.first().map(AsRawFd::as_raw_fd).ok_or_else(|| Error::other("a group of no events"))
}

/// What the kernel has counted for a group of this many events.
fn read_group(leader: libc::c_int, members: usize) -> Result<Vec<u64>> {
    let mut words = vec![0u64; 3 + 2 * members];
    let bytes = size_of_val(words.as_slice());
    // SAFETY: the buffer is valid for that many bytes, of which any are numbers.
    let count = unsafe { libc::read(leader, words.as_mut_ptr().cast(), bytes) };
    if count < 0 {
        return Err(Error::last_os_error());
    }
    words.truncate(count as usize / size_of::<u64>());
    Ok(words)
}

/// Opens one event for the calling thread on any CPU, as a member of the group of a leader, or as one (-1).
fn open_event(
    event: EventCode,
    processor_type: Option<u32>,
    leader: libc::c_int,
    counts_kernel: bool,
) -> Result<OwnedFd> {
    // Cores of several kinds have counters of their own: the upper half of the number is their type.
    let processor_type = processor_type.filter(|_| event.event_type != TYPE_SOFTWARE);
    let config = event.config | processor_type.map_or(0, |kind| u64::from(kind) << 32);
    let attributes = EventAttributes {
        event_type: event.event_type,
        size: size_of::<EventAttributes>() as u32,
        config,
        read_format: FORMAT_GROUP | FORMAT_ID | FORMAT_TOTAL_TIME_ENABLED | FORMAT_TOTAL_TIME_RUNNING,
        // Members count when their leader does.
        flags: if leader < 0 { FLAG_DISABLED } else { 0 }
            | FLAG_EXCLUDE_HYPERVISOR
            | if counts_kernel { 0 } else { FLAG_EXCLUDE_KERNEL },
        ..EventAttributes::default()
    };
    // SAFETY: the attributes are valid for the call, and have the size that they state; 0 is the calling thread and -1 any CPU.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, leader, FLAG_CLOSE_ON_EXEC) };
    let descriptor = check(descriptor as libc::c_int)?;
    // SAFETY: the call has just returned it, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The number by which the kernel names an event.
fn id_of(descriptor: &OwnedFd) -> Result<u64> {
    let mut id = 0u64;
    // SAFETY: the descriptor is open, and the kernel writes a number to where the valid pointer leads.
    check(unsafe { libc::ioctl(descriptor.as_raw_fd(), IOCTL_ID as _, &raw mut id) })?;
    Ok(id)
}

/// The type of the counters of a CPU's kind of core, on a processor of several kinds; `None` on others.
fn processor_type_of(cpu: u32) -> Option<u32> {
    let sources = Path::new("/sys/bus/event_source/devices");
    let of_kind = |name: &str| {
        let read = |file: &str| fs::read_to_string(sources.join(name).join(file)).ok();
        let has_cpu = read("cpus")?.trim().split(',').any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&cpu))
        });
        read("type")?.trim().parse().ok().filter(|_| has_cpu)
    };
    ["cpu_core", "cpu_atom", "cpu_lowpower"].into_iter().find_map(of_kind)
}

#[cfg(test)]
mod tests {
    use kelvin_testing::recorded_counters;

    use super::*;
    use crate::mapping::{page_bytes, write_pages};
    use crate::memory::{Arena, PagePolicy};

    const CYCLES: EventCode = EventCode::new((0, 0));
    const INSTRUCTIONS: EventCode = EventCode::new((0, 1));

    #[test]
    fn faults_of_the_thread_are_counted_exactly() {
        let group = match CounterGroup::open(&[EventCode::PAGE_FAULTS], 0) {
            Ok(group) => group,
            // A container may filter the call.
            Err(error) => {
                let allowed = [libc::EACCES, libc::EPERM, libc::ENOSYS];
                return assert!(error.raw_os_error().is_some_and(|code| allowed.contains(&code)), "{error}");
            }
        };
        const PAGES: usize = 100;
        let mut arena = Arena::map(PAGES * page_bytes(), PagePolicy::Base).unwrap();
        for expected in [PAGES as u64, 0] {
            let ((), values) = group.count(|| write_pages(&mut arena, page_bytes(), PAGES)).unwrap();
            assert_eq!(values.complete_counts(), Some(vec![(EventCode::PAGE_FAULTS, expected)]));
        }
    }

    #[test]
    fn missing_processor_counters_are_an_error_with_their_reason() {
        match CounterGroup::open(&[CYCLES, INSTRUCTIONS], crate::cpu::current()) {
            Ok(group) => {
                const ITERATIONS: u64 = 1_000_000;
                let (_, values) = group.count(|| crate::kernels::chain_multiply(ITERATIONS)).unwrap();
                let Some(counts) = values.complete_counts() else { return };
                let of = |event| counts.iter().find(|(counted, _)| *counted == event).map(|(_, count)| *count);
                // The chain and the two instructions of its loop. The counters' own start and stop, and interrupts, are little beside it.
                let instructions = ITERATIONS * (crate::kernels::CHAIN_LENGTH + 2);
                let is_right = |count| (instructions..instructions + instructions / 50).contains(&count);
                assert!(of(INSTRUCTIONS).is_none_or(is_right), "{counts:?}");
                // A dependent multiply takes a cycle at least.
                assert!(
                    of(CYCLES).is_none_or(|cycles| cycles >= ITERATIONS * crate::kernels::CHAIN_LENGTH),
                    "{counts:?}"
                );
            }
            Err(error) => {
                let known = [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV, libc::EACCES, libc::EPERM, libc::ENOSYS];
                assert!(error.raw_os_error().is_some_and(|code| known.contains(&code)), "{error}");
            }
        }
    }

    /// The members of the recorded group, each an event of the number of its place.
    fn recorded_members() -> Vec<GroupMember> {
        let member = |(id, number)| GroupMember { event: EventCode::new((0, number)), id };
        recorded_counters::IDS.into_iter().zip(0..).map(member).collect()
    }

    #[test]
    fn recorded_reads_are_parsed_and_damaged_ones_refused() {
        let members = recorded_members();
        let parse = |words: &[u64]| CounterValues::parse(words, &members);
        let whole = &recorded_counters::reads("complete")[1];
        let values = parse(whole).unwrap();
        assert_eq!((values.enabled_nanoseconds, values.running_nanoseconds), (5_000, 5_000));
        let counts = members.iter().map(|member| member.event).zip([400, 300, 0, 0, 2]).collect();
        assert_eq!(values.complete_counts(), Some(counts));
        for words in recorded_counters::reads("damaged") {
            assert_eq!(parse(&words), None, "{words:?}");
        }
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
        assert_eq!(parse(&[whole, &[0][..]].concat()), None);
    }

    #[test]
    fn times_of_earlier_counts_do_not_count() {
        let group = CounterGroup::recorded(recorded_members(), recorded_counters::reads("multiplexed"));
        let complete = [(); 4].map(|()| group.count(|| ()).unwrap().1.complete_counts().is_some());
        assert_eq!(complete, [false, true, false, true], "without counters, alone, with others, and alone");
        assert!(group.count(|| ()).is_err(), "no more was recorded");
    }

    #[test]
    fn group_without_free_counters_loses_its_last_members() {
        let two = |words: [u64; 4]| vec![2, words[0], words[1], words[2], 71, words[3], 72];
        let one = |words: [u64; 3]| vec![1, words[0], words[1], words[2], 71];
        let reads = [two([0; 4]), two([900, 0, 0, 0]), one([900, 0, 0]), one([1800, 900, 3000])];
        let group = CounterGroup::recorded(recorded_members()[..2].to_vec(), reads).with_free_counters().unwrap();
        assert_eq!(group.events().collect::<Vec<_>>(), [CYCLES]);
    }
}
