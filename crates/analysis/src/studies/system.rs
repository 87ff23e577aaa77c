//! What the operating system adds: a system call compared with a function call, a process with a thread, also when one is woken.

use kelvin_core::IndirectSort;
use kelvin_core::catalogue::cpu::{ARGUMENTS, CALL_ARGS, CallKind};
use kelvin_core::catalogue::mem::PageSize;
use kelvin_core::catalogue::os::*;

use super::network::placement_text;
use crate::prelude::*;

/// How two tasks pass the token between which a CPU is switched.
const SWITCHES: [(&str, HandoffMechanism); 5] = [
    ("by pipes", HandoffMechanism::Pipe),
    ("by a futex", HandoffMechanism::Futex),
    ("by eventfds", HandoffMechanism::Eventfd),
    ("by a condition variable", HandoffMechanism::Condvar),
    ("by yielding", HandoffMechanism::Yield),
];

/// The probes that these conclusions rest on, each of a plain run.
pub(crate) const SYSTEM_PROBES: [&str; 6] = [
    CALL_ARGS.id.as_str(),
    SYSCALL_NULL.id.as_str(),
    THREAD_CREATE.id.as_str(),
    PROCESS_FORK.id.as_str(),
    PROCESS_FORK_RSS.id.as_str(),
    SWITCH_COST.id.as_str(),
];

/// Conclusions from calls, new tasks and switches of a run; `None` unless two that belong together were measured.
pub(crate) fn system(evidence: &Evidence<'_>) -> Option<Study> {
    let rounds_at = |metric: &Metric, case: Case| evidence.rounds_at(metric, &case);
    let function = rounds_at(&CALL_ARGS, Case::new().with_number(ARGUMENTS, 0).with_word(CallKind::Direct));
    let call = rounds_at(&SYSCALL_NULL, Case::new().with_word(NullCall::Getppid));
    let call_text = "a system call takes longer than a function call";
    let call = longer_conclusion(RatioQuestion::SystemCallAgainstCall, [function, call], call_text);
    let thread = rounds_at(&THREAD_CREATE, Case::new());
    let fork = |process: &str, fork| {
        let text = format!("a fork of {process} takes longer than creating a thread");
        longer_conclusion(RatioQuestion::ForkAgainstThread, [thread, fork], &text)
    };
    let switches = SWITCHES.iter().filter_map(|(method, mechanism)| {
        let pair =
            [mechanism.between_threads(), mechanism.between_processes()].map(|case| rounds_at(&SWITCH_COST, case));
        let text = format!("a switch between processes {method} takes longer than between threads");
        longer_conclusion(RatioQuestion::ProcessSwitchAgainstThread, pair, &text)
    });
    // Those with most memory first.
    let mut fork_rounds: Vec<&RoundHeadlines<'_>> = evidence.all_cases(&PROCESS_FORK_RSS).iter().collect();
    fork_rounds.indirect_sort_by_key(|fork| {
        (PageSize::of(fork.case) != Some(PageSize::Base), u64::MAX - RESIDENT.number_in(fork.case).unwrap_or(0))
    });
    let large_forks = fork_rounds.into_iter().filter_map(|large_process| {
        let pages = if PageSize::of(large_process.case) == Some(PageSize::Huge) { "huge" } else { "base" };
        let size = bytes(RESIDENT.number_in(large_process.case)?);
        fork(&format!("a process with {size} in {pages} pages"), Some(large_process))
    });
    let small_fork = fork("a small process", rounds_at(&PROCESS_FORK, Case::new()));
    let conclusions = call.into_iter().chain(small_fork).chain(switches).chain(large_forks);
    let design = "Function calls, system calls, new threads, forks and switches of one CPU between two tasks were timed in several rounds. \
                  The second of two is compared with the first by their medians; the same within 5 % counts as no difference.";
    Study::new(STUDY, design, conclusions.collect())
}

/// Whether the second takes longer, where one of both was requested.
fn longer_conclusion(
    question: RatioQuestion,
    pair: [Option<&RoundHeadlines<'_>>; 2],
    claim: &str,
) -> Option<StatedConclusion> {
    let [Some(first), Some(second)] = pair else { return None };
    if first.only_input && second.only_input {
        return None;
    }
    let answer = RatioTest::above(question, 1.0).test(first, second)?;
    Some(answer.conclude_times(claim, "as long"))
}

/// What a thread and a process wait for.
const WAITED_FOR: [(HandoffMechanism, &str); 3] = [
    (HandoffMechanism::Pipe, "a pipe"),
    (HandoffMechanism::Futex, "a futex"),
    (HandoffMechanism::Condvar, "a condition variable"),
];

/// Conclusions from the metric `os.switch.one_way`.
pub(crate) fn one_way(evidence: &Evidence<'_>) -> Option<Study> {
    let conclusion = |placement: PairPlacement, (mechanism, waited_for): (HandoffMechanism, &str)| {
        let pair = [mechanism.between_threads(), mechanism.between_processes()];
        let [thread, process] = pair.map(|case| evidence.rounds_at(&ONE_WAY_WAKE_UP, &case.with_word(placement)));
        let answer = RatioTest::above(RatioQuestion::ProcessWakeAgainstThread, 1.0).test(thread?, process?)?;
        let placement = placement_text(&answer.other.case);
        let claim = format!("{placement} {waited_for} wakes a process later than a thread");
        Some(answer.conclude_times(&claim, "as long"))
    };
    let placements = [PairPlacement::SameCpu, PairPlacement::TwoCpus];
    let conclusions = placements
        .iter()
        .flat_map(|&placement| WAITED_FOR.iter().filter_map(move |&wait| conclusion(placement, wait)))
        .collect();
    let design = "A task woke another one, a thread or a process, on its own CPU or on another, and each wake-up was timed alone, in several \
                  rounds. Both are compared by their medians; the same within 5 % counts as no difference.";
    Study::new(ONE_WAY_WAKE_UP.id, design, conclusions)
}
