//! What the operating system adds: a system call beside a function call, a process beside a thread.

use kelvin_core::catalogue::cpu::{ARGUMENTS, CALL_ARGS, CallKind};
use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::catalogue::os::{
    NullCall, PROCESS_FORK, PROCESS_FORK_RSS, RESIDENT, STUDY, SWITCH_PROCESS_CONDVAR, SWITCH_PROCESS_EVENTFD,
    SWITCH_PROCESS_FUTEX, SWITCH_PROCESS_PIPE, SWITCH_PROCESS_YIELD, SWITCH_THREAD_CONDVAR, SWITCH_THREAD_EVENTFD,
    SWITCH_THREAD_FUTEX, SWITCH_THREAD_PIPE, SWITCH_THREAD_YIELD, SYSCALL_NULL, THREAD_CREATE,
};
use kelvin_core::{Case, Conclusion, Metric, RatioQuestion};

use crate::evidence::{Evidence, RatioTest, RoundHeadlines};
use crate::result::Study;

/// Switches between threads and between processes, by what they wait for.
static SWITCH_PAIRS: [[&Metric; 2]; 5] = [
    [&SWITCH_THREAD_PIPE, &SWITCH_PROCESS_PIPE],
    [&SWITCH_THREAD_FUTEX, &SWITCH_PROCESS_FUTEX],
    [&SWITCH_THREAD_EVENTFD, &SWITCH_PROCESS_EVENTFD],
    [&SWITCH_THREAD_CONDVAR, &SWITCH_PROCESS_CONDVAR],
    [&SWITCH_THREAD_YIELD, &SWITCH_PROCESS_YIELD],
];

/// The probes that these conclusions rest on, each of a plain run.
pub(crate) const SYSTEM_PROBES: [&str; 7] = [
    CALL_ARGS.id.as_str(),
    SYSCALL_NULL.id.as_str(),
    THREAD_CREATE.id.as_str(),
    PROCESS_FORK.id.as_str(),
    PROCESS_FORK_RSS.id.as_str(),
    "os.switch.thread",
    "os.switch.process",
];

/// Conclusions from calls, new tasks and switches of a run; `None` unless two that belong together were measured.
pub(crate) fn system(evidence: &Evidence<'_>) -> Option<Study> {
    let switches = SWITCH_PAIRS.iter().filter_map(|[thread, process]| {
        let [thread, process] = [thread, process].map(|metric| evidence.rounds_at(metric, &Case::new()));
        longer_conclusion(RatioQuestion::ProcessSwitchBesideThread, &thread?, &process?)
    });
    let [small, large] = fork_conclusions(evidence);
    let conclusions = call_conclusion(evidence).into_iter().chain(small).chain(switches).chain(large);
    let design = "Function calls, system calls, new threads, forks and switches of one CPU between two tasks were timed in several rounds. \
                  The second of two is compared with the first by their medians; the same within 5 % counts as no difference.";
    Study::new(STUDY, design, conclusions.collect())
}

/// Whether the second takes longer, where one of both was asked for.
fn longer_conclusion(
    question: RatioQuestion,
    first: &RoundHeadlines<'_>,
    second: &RoundHeadlines<'_>,
) -> Option<Conclusion> {
    let is_asked = !(first.only_input && second.only_input);
    is_asked.then(|| RatioTest::above(question, 1.0).test(first, second)).flatten()
}

/// A system call beside a function call without arguments.
fn call_conclusion(evidence: &Evidence<'_>) -> Option<Conclusion> {
    let function =
        evidence.rounds_at(&CALL_ARGS, &Case::new().with_number(ARGUMENTS, 0).with_word(CallKind::Direct))?;
    let system = evidence.rounds_at(&SYSCALL_NULL, &Case::new().with_word(NullCall::Getppid))?;
    longer_conclusion(RatioQuestion::SystemCallBesideCall, &function, &system)
}

/// A fork beside a new thread, each until it returns: of a small process; and of larger ones, those with most memory first.
fn fork_conclusions(evidence: &Evidence<'_>) -> [Vec<Conclusion>; 2] {
    let Some(thread) = evidence.rounds_at(&THREAD_CREATE, &Case::new()) else { return Default::default() };
    let mut resident = evidence.all_cases(&PROCESS_FORK_RSS);
    resident.sort_by_key(|fork| {
        (PageSize::of(fork.case) != Some(PageSize::Base), u64::MAX - RESIDENT.number_in(fork.case).unwrap_or(0))
    });
    let small = evidence.rounds_at(&PROCESS_FORK, &Case::new()).into_iter().collect();
    [small, resident].map(|forks| {
        forks.iter().filter_map(|fork| longer_conclusion(RatioQuestion::ForkBesideThread, &thread, fork)).collect()
    })
}
