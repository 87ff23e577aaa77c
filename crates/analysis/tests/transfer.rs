//! The study of transfers over runs whose factors are known by construction.

use kelvin_analysis::testing::{add_measurement, add_scalars, empty_run, reading, round, round_with_outcome, study};
use kelvin_analysis::{Study, analyse};
use kelvin_core::catalogue::transfer::{
    COLD_TIME, CellSetting, ConnectionPolicy, EQUAL_CALL_SIZES, PUBLISHED_BUFFER, ReceiverMethod, ReplyPolicy,
    SenderMethod, TIME, TransferFiles, WaitMode, best_cell, cell,
};
use kelvin_core::{
    Case, Claim, Hazard, Name, Readings, RoundOutcome, Run, Severity, TestEvidence, TimeChange, TransferClaim,
    TransferFactor,
};

/// Rounds of a case with this time, half a percent around it, in an order of its own.
const SPREAD: [f64; 6] = [0.995, 0.998, 1.0, 1.001, 1.003, 1.005];

fn measure(run: &mut Run, case: &Case, time: f64) {
    let mut rounds = SPREAD.map(|share| share * time);
    // Not one that moves all by the same: rounds of a pass are compared, and must not all be equal.
    let position = run.measurements.len();
    rounds.swap(position % 6, (position + 1) % 6);
    add_scalars(run, &TIME, case.clone(), &rounds);
}

/// 20 us for each file and a byte in half a nanosecond.
fn linear_cost(files: TransferFiles) -> f64 {
    let (count, bytes) = files.count_and_bytes();
    20_000.0 * count as f64 + 0.5 * bytes as f64
}

fn published_setting(window: u64) -> CellSetting {
    CellSetting { connection: ConnectionPolicy::Persistent, window, buffer: PUBLISHED_BUFFER }
}

fn factors(study: &Study, expected: TransferFactor) -> Vec<(Option<bool>, Vec<TimeChange>, String)> {
    let changes = |claim: &Claim| match claim {
        Claim::Transfer(TransferClaim::Factor { factor, by_files, .. }) if *factor == expected => {
            Some(by_files.iter().map(|entry| entry.change).collect())
        }
        _ => None,
    };
    let conclusions = study.conclusions.iter();
    conclusions
        .filter_map(|conclusion| Some((conclusion.holds, changes(&conclusion.claim)?, conclusion.text.clone())))
        .collect()
}

/// The four pairs as published: mmap at the receiver takes this part of the time, at the sender that one.
fn add_published_pairs(run: &mut Run, [sender, receiver]: [f64; 2], setting: CellSetting) {
    for &files in TransferFiles::ALL {
        for (send, by_sender) in [(SenderMethod::ReadWrite, 1.0), (SenderMethod::Mmap, sender)] {
            for (receive, by_receiver) in [(ReceiverMethod::ReadWrite, 1.0), (ReceiverMethod::Mmap, receiver)] {
                let time = linear_cost(files) * by_sender * by_receiver;
                measure(run, &cell(send, receive, setting).with_word(files), time);
            }
        }
    }
}

#[test]
fn end_with_larger_effect_decides() {
    let mut run = empty_run(&[TIME]);
    add_published_pairs(&mut run, [1.1, 0.5], published_setting(256));
    let [(window, buffer), _] = EQUAL_CALL_SIZES;
    add_published_pairs(&mut run, [0.6, 1.2], CellSetting { window, buffer, ..published_setting(0) });
    let study = study(&run, "transfer").unwrap();
    let ends = |claim: &Claim| match claim {
        Claim::Transfer(TransferClaim::Ends { ends, interaction, receiver_decides, published, .. }) => {
            Some((*ends, *interaction, *receiver_decides, *published))
        }
        _ => None,
    };
    let results: Vec<_> =
        study.conclusions.iter().filter_map(|conclusion| Some((conclusion.holds, ends(&conclusion.claim)?))).collect();
    assert_eq!(results.len(), 6);
    for (index, (holds, ([sender, receiver], interaction, decides, published))) in results.into_iter().enumerate() {
        let is_published = index < 3;
        assert_eq!((holds, decides), (Some(is_published), Some(is_published)));
        let [by_sender, by_receiver] = if is_published { [1.1, 0.5] } else { [0.6, 1.2] };
        // Medians over rounds of half a percent around the truth.
        let is_near = |value: f64, truth: f64| (value / truth - 1.0).abs() < 0.005;
        assert!(is_near(sender.value, by_sender) && is_near(receiver.value, by_receiver), "{sender:?} {receiver:?}");
        assert!(sender.low < by_sender && by_sender < sender.high && is_near(interaction.value, 1.0));
        // The publication: ln 0.44 over the receiver, next to nothing over the sender.
        assert_eq!(published, is_published.then_some(true));
    }
    let sentence = study
        .conclusions
        .iter()
        .map(|conclusion| conclusion.text.as_str())
        .find(|text| text.contains("decides"))
        .unwrap();
    assert_eq!(
        sentence,
        "10 files of 2.4 kB, 256 pages against 512 B a call: the receiver's method decides more than the sender's: mmap at the \
         receiver takes 0.50 times as long (0.50 to 0.50), at the sender 1.10 times as long (1.10 to 1.10); both together 1.00 \
         times what the two alone would give (1.00 to 1.00); the published means agree"
    );
}

#[test]
fn claim_names_files_it_holds_for() {
    let mut run = empty_run(&[TIME]);
    let times = |files| if files == TransferFiles::Small { [1.0, 1.5] } else { [1.0, 0.5] };
    for &files in TransferFiles::ALL {
        let [copied, mapped] = times(files).map(|share| share * linear_cost(files));
        measure(
            &mut run,
            &cell(SenderMethod::ReadWrite, ReceiverMethod::ReadWrite, published_setting(256)).with_word(files),
            copied,
        );
        measure(
            &mut run,
            &cell(SenderMethod::Mmap, ReceiverMethod::Mmap, published_setting(256)).with_word(files),
            mapped,
        );
    }
    let study = study(&run, "transfer").unwrap();
    let [(holds, changes, text)] = &factors(&study, TransferFactor::Mmap)[..] else { panic!("{study:?}") };
    assert_eq!(
        (*holds, &changes[..]),
        (Some(true), &[TimeChange::Longer, TimeChange::Shorter, TimeChange::Shorter][..])
    );
    assert_eq!(
        text,
        "mmap at both ends is faster than read/write, 256 pages against 512 B a call, with 1 file of 12 MB and 2 files of 182 MB, and \
         not with 10 files of 2.4 kB: 10 files of 2.4 kB 1.50 times as long (1.49 to 1.51; published 0.44); 1 file of 12 MB 0.50 times \
         as long (0.50 to 0.50; published 0.16); 2 files of 182 MB 0.50 times as long (0.50 to 0.50; published 0.15); the published \
         means contradict it for 10 files of 2.4 kB, not explained: with --dir on tmpfs the same study shows whether the file system is the reason"
    );
    assert!(matches!(study.conclusions[0].evidence, TestEvidence::Ratios { count: 3, rounds: 6 }));
    // Where the files were written to memory, the file system is not suggested again.
    run.header.hazards.push(Hazard {
        id: Name::new("scratch_in_memory"),
        severity: Severity::Serious,
        summary: "the directory is on tmpfs".into(),
        effect: "no disk is measured".into(),
        affects: Vec::new(),
        remedy: None,
        remedy_is_command: false,
        source: "a test".into(),
    });
    let study = kelvin_analysis::testing::study(&run, "transfer").unwrap();
    let [(_, _, text)] = &factors(&study, TransferFactor::Mmap)[..] else { panic!("{study:?}") };
    assert!(
        text.ends_with(
            "10 files of 2.4 kB, not explained, and not by blocks of a file system: these files were written to memory"
        ),
        "{text}"
    );
}

#[test]
fn connection_and_reply_cost_for_small_files() {
    let mut run = empty_run(&[TIME]);
    for &files in TransferFiles::ALL {
        let (count, _) = files.count_and_bytes();
        measure(&mut run, &best_cell().with_word(files), linear_cost(files));
        let time_with = |extra: f64, times: u64| linear_cost(files) + extra * times as f64;
        measure(
            &mut run,
            &best_cell().with_word(ConnectionPolicy::PerFile).with_word(files),
            time_with(50_000.0, count - 1),
        );
        measure(&mut run, &best_cell().with_word(ReplyPolicy::PerFile).with_word(files), time_with(30_000.0, count));
        measure(&mut run, &best_cell().with_word(WaitMode::Signal).with_word(files), linear_cost(files));
    }
    let study = study(&run, "transfer").unwrap();
    let per_file_costs = |expected: TransferFactor| {
        study.conclusions.iter().find_map(|conclusion| match &conclusion.claim {
            Claim::Transfer(TransferClaim::Factor { factor, by_files, .. }) if *factor == expected => Some(
                by_files.iter().map(|entry| entry.per_file.map(|cost| (cost.value / 1e3).round())).collect::<Vec<_>>(),
            ),
            _ => None,
        })
    };
    assert_eq!(per_file_costs(TransferFactor::ConnectionPerFile).unwrap(), [Some(50.0), None, None]);
    assert_eq!(per_file_costs(TransferFactor::Replies).unwrap(), [Some(30.0), None, None]);
    let [(holds, changes, text)] = &factors(&study, TransferFactor::Mode)[..] else { panic!("{study:?}") };
    assert_eq!((*holds, &changes[..]), (Some(false), &[TimeChange::Same; 3][..]));
    assert!(
        text.starts_with("calls that do not block, and signals, in place of calls that block cost time: "),
        "{text}"
    );
    // 30 us are nothing compared with the large files.
    let [(_, _, text)] = &factors(&study, TransferFactor::Replies)[..] else { panic!("{study:?}") };
    let words =
        "waiting for a reply to each file before the next costs time, with 10 files of 2.4 kB, and not with 1 file";
    assert!(text.starts_with(words), "{text}");
}

#[test]
fn tables_have_cells_published_means_costs() {
    let mut run = empty_run(&[TIME, COLD_TIME]);
    add_published_pairs(&mut run, [1.0, 1.0], published_setting(256));
    for &files in TransferFiles::ALL {
        add_scalars(
            &mut run,
            &COLD_TIME,
            best_cell().with_word(files),
            &SPREAD.map(|share| 3.0 * share * linear_cost(files)),
        );
    }
    let analysis = analyse(&run);
    let study = analysis.studies.iter().find(|study| study.id == *"transfer").unwrap();
    let ids: Vec<&str> = study.tables.iter().map(|table| table.id.as_str()).collect();
    let expected = ["time.small", "time.one", "time.large", "cold.small", "cold.one", "cold.large", "costs"];
    assert_eq!(ids, expected.map(|id| format!("transfer.{id}")));
    let table = &study.tables[0];
    // The title states what the published column is, and whose.
    assert!(table.title.contains(", in memory; published is the mean of an earlier study: "), "{}", table.title);
    assert!(table.title.ends_with("character devices over loopback, 2020"), "{}", table.title);
    let column_index = |label: &str| table.columns.iter().position(|column| column.label == label).unwrap();
    let value = |row: usize, label: &str| table.rows[row].cells[column_index(label)].map(|figure| figure.value);
    assert_eq!(table.rows[0].label, "rw/rw, 256 pages, 512 B");
    assert_eq!((value(0, "published"), value(0, "trials")), (Some(1.666e6), Some(6.0)));
    assert!((value(0, "median").unwrap() / linear_cost(TransferFiles::Small) - 1.0).abs() < 0.001);
    assert_eq!(value(0, "rate"), None, "it was not measured");
    assert_eq!(
        table.bars.map(|bars| bars.map(|index| table.columns[index].label.as_str())),
        Some(["median", "published"])
    );
    let costs = study.tables.last().unwrap();
    let [file, rate, residual] = [0, 1, 2].map(|index| costs.rows[0].cells[index].unwrap().value);
    assert!((file / 20_000.0 - 1.0).abs() < 0.01 && (rate / 2e9 - 1.0).abs() < 0.01 && residual < 0.1, "{costs:?}");
}

#[test]
fn single_round_has_tables_without_conclusions() {
    let mut run = empty_run(&[TIME]);
    add_scalars(&mut run, &TIME, best_cell().with_word(TransferFiles::One), &[1e6]);
    let analysis = analyse(&run);
    assert!(analysis.studies[0].conclusions.is_empty() && analysis.studies[0].tables.len() == 1);
    assert!(analyse(&kelvin_analysis::testing::empty_run(&[TIME])).studies.is_empty());
}

#[test]
fn larger_calls_gain_is_not_mapping_gain() {
    // By calls of 1 MiB a fifth of the time, by mapping this much of that.
    let gain_conclusion = |by_mapping: f64| {
        let mut run = empty_run(&[TIME]);
        let (window, buffer) = EQUAL_CALL_SIZES[1];
        for &files in TransferFiles::ALL {
            let copying = |setting| cell(SenderMethod::ReadWrite, ReceiverMethod::ReadWrite, setting).with_word(files);
            measure(&mut run, &copying(published_setting(window)), linear_cost(files));
            measure(&mut run, &copying(CellSetting { buffer, ..published_setting(window) }), 0.2 * linear_cost(files));
            let mapped = cell(SenderMethod::Mmap, ReceiverMethod::Mmap, published_setting(window)).with_word(files);
            measure(&mut run, &mapped, 0.2 * by_mapping * linear_cost(files));
        }
        let study = study(&run, "transfer").unwrap();
        let is_gain = |conclusion: &&kelvin_analysis::StatedConclusion| {
            matches!(conclusion.claim, Claim::Transfer(TransferClaim::Gain { .. }))
        };
        let gain = study.conclusions.iter().find(is_gain).unwrap();
        (gain.holds, gain.text.clone())
    };
    let (holds, text) = gain_conclusion(1.5);
    assert_eq!(holds, Some(true));
    assert!(
        text.contains(
            "10 files of 2.4 kB 0.30 times as long = 0.20 (0.20 to 0.20) by calls of 1 MiB x 1.50 (1.49 to 1.51) by mapping in \
             place of those; published 0.44"
        ),
        "{text}"
    );
    assert_eq!(gain_conclusion(0.5).0, Some(false));
    // No gain at all: nothing to explain.
    assert_eq!(gain_conclusion(7.0).0, None);
}

#[test]
fn failed_round_keeps_later_pairs_aligned() {
    // The machine becomes slower from pass to pass, for all cells alike; each of them fails in another pass.
    let slower = |pass: usize| 1.0 + 0.3 * pass as f64;
    let mut run = empty_run(&[TIME]);
    let mut add_cell = |case: Case, time: f64, failing: usize| {
        let position = run.measurements.len();
        let of_pass = |pass: usize| {
            let time = time * slower(pass) * SPREAD[(pass + position) % SPREAD.len()];
            let measured = || round(pass, vec![reading(&TIME, Readings::Scalars(vec![time]))]);
            if pass == failing {
                round_with_outcome(pass, RoundOutcome::Failed("it crashed".into()))
            } else {
                measured()
            }
        };
        add_measurement(&mut run, &TIME, case, (0..12).map(of_pass).collect());
    };
    for &files in TransferFiles::ALL {
        let pairs =
            [(SenderMethod::ReadWrite, 1.0), (SenderMethod::Mmap, 1.1)].into_iter().flat_map(|(sender, by_sender)| {
                [(ReceiverMethod::ReadWrite, 1.0), (ReceiverMethod::Mmap, 0.5)]
                    .map(|(receiver, by_receiver)| (sender, receiver, by_sender * by_receiver))
            });
        for (place, (sender, receiver, factor)) in pairs.enumerate() {
            add_cell(
                cell(sender, receiver, published_setting(256)).with_word(files),
                linear_cost(files) * factor,
                place + 4,
            );
        }
    }
    let study = study(&run, "transfer").unwrap();
    let mut checked = 0;
    for claim in study.conclusions.iter().map(|conclusion| &conclusion.claim) {
        match claim {
            Claim::Transfer(TransferClaim::Factor { factor: TransferFactor::Mmap, by_files, .. }) => {
                for ratio in by_files.iter().map(|entry| entry.ratio) {
                    assert!(ratio.low > 0.54 && ratio.high < 0.56 && !ratio.is_range, "{ratio:?}");
                    checked += 1;
                }
            }
            Claim::Transfer(TransferClaim::Ends { ends: [sender, receiver], receiver_decides, .. }) => {
                assert!(sender.low > 1.08 && sender.high < 1.12 && receiver.low > 0.49 && receiver.high < 0.51);
                assert_eq!(*receiver_decides, Some(true));
                checked += 1;
            }
            _ => {}
        }
    }
    assert_eq!(checked, 6, "{study:?}");
}
