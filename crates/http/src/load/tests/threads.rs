//! Loads on several threads: together they do what one does.

use std::collections::BTreeMap;

use super::*;
use crate::load::url_list::parse_url_list;

/// The load on this many threads, wherever the system places them.
fn on_threads(setup: &LoadSetup, threads: u32) -> LoadSetup {
    LoadSetup { threads: GeneratorThreads::Unpinned(threads), ..setup.clone() }
}

/// A server that counts the requests for each path.
fn counting_server() -> (ScriptedServer, Arc<Mutex<BTreeMap<String, u64>>>) {
    let paths = Arc::<Mutex<BTreeMap<String, u64>>>::default();
    let counted = Arc::clone(&paths);
    let server = ScriptedServer::start(move |request| {
        let path = request.head.split(' ').nth(1).unwrap().to_owned();
        *counted.lock().unwrap().entry(path).or_default() += 1;
        (ok(b"x"), AfterAnswer::Stay)
    });
    (server, paths)
}

#[test]
fn threads_request_the_urls_of_one() {
    let list: String = (0..30).map(|number| format!("/{number}\n")).collect();
    let requested_paths = |threads, pattern| {
        let (server, counts) = counting_server();
        let (target, paths) = parse_url_list(&list, Some(server.url("/").parse().unwrap())).unwrap();
        let expected_bodies = vec![None; paths.len()];
        let setup = LoadSetup { target, paths, expected_bodies, pattern, ..two_user_setup(&server) };
        let demand = Demand::Rate { rate: 500.0, arrivals: TimeDistribution::Exponential, connections: 50 };
        let load = measure(&on_threads(&LoadSetup { demand, ..setup }, threads));
        let counts = counts.lock().unwrap().clone();
        assert_eq!((load.requests, load.response.count), (counts.values().sum(), load.requests), "{load:?}");
        assert_eq!(load.generator.threads.len(), threads as usize);
        let OfferedLoad::Rate { due, .. } = load.offered else { panic!("{load:?}") };
        (counts, due)
    };
    for pattern in [AccessPattern::Random, AccessPattern::Sequence, AccessPattern::Zipf(1.0)] {
        let single = requested_paths(1, pattern);
        assert!(single.0.values().sum::<u64>() > 50, "{single:?}");
        for threads in [2, 5] {
            assert_eq!(requested_paths(threads, pattern), single, "{pattern:?} {threads}");
        }
    }
}

#[test]
fn threads_replay_each_request_of_a_log() {
    let (server, counts) = counting_server();
    let paths: Vec<String> = (0..7).map(|number| format!("/{number}")).collect();
    let demand = Demand::Log { times: (0..7).map(|number| number * 1_000_000).collect(), connections: 7 };
    let (expected_bodies, pattern) = (vec![None; paths.len()], AccessPattern::Sequence);
    let setup = LoadSetup { paths: paths.clone(), expected_bodies, pattern, demand, ..two_user_setup(&server) };
    let load = measure(&on_threads(&setup, 3));
    assert_eq!(load.requests, 7, "{load:?}");
    assert_eq!(*counts.lock().unwrap(), paths.into_iter().map(|path| (path, 1)).collect());
}

#[test]
fn users_are_divided_over_threads() {
    let (server, _) = counting_server();
    let demand = Demand::Users { users: 7, think: ZERO_THINK_TIME };
    let duration = Duration::from_millis(1100);
    let load = measure(&on_threads(&LoadSetup { demand, duration, ..two_user_setup(&server) }, 3));
    assert_eq!((load.connections, load.errors.count()), (7, 0), "{load:?}");
    assert!(load.requests > 0 && load.response.count == load.requests, "{load:?}");
    assert!(load.in_flight.is_some_and(|in_flight| in_flight > 0.0 && in_flight <= 7.001), "{load:?}");
    assert_eq!(load.series.len(), 1);
    assert!(load.series[0].requests <= load.requests && load.series[0].max.unwrap() <= load.response.max, "{load:?}");
    assert!(matches!(load.offered, OfferedLoad::Users { users: 7, .. }));
}

/// The first body that any thread gets is what all compare with.
#[test]
fn threads_learn_one_body() {
    let server = ScriptedServer::start_serial(|request| {
        (ok(if request.number == 0 { b"right" } else { b"wrong" }), AfterAnswer::Stay)
    });
    let demand = Demand::Users { users: 3, think: ZERO_THINK_TIME };
    let setup = LoadSetup { demand, verify: Verify::Content, ..two_user_setup(&server) };
    let load = measure(&on_threads(&setup, 3));
    let (right, wrong) = (load.requests, load.errors.wrong);
    assert!(right.min(wrong) == 1 && right + wrong > 3 && load.errors.count() == wrong, "{load:?}");
}

#[test]
fn pinned_thread_has_its_cpu() {
    let (server, _) = counting_server();
    let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
    let threads = GeneratorThreads::Pinned(vec![cpu, cpu]);
    let load = measure(&LoadSetup { threads, ..two_user_setup(&server) });
    let cpus: Vec<&[u32]> = load.generator.threads.iter().map(|thread| &thread.cpus[..]).collect();
    assert_eq!((&cpus[..], &load.generator.cpus[..]), (&[&[cpu][..]; 2][..], &[cpu][..]));
}

#[test]
fn failing_thread_ends_the_others() {
    const NO_CPU: u32 = 1023;
    let (server, _) = counting_server();
    let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
    let threads = GeneratorThreads::Pinned(vec![cpu, NO_CPU]);
    // Longer than any test may take.
    let setup = LoadSetup { threads, duration: Duration::from_secs(3600), ..two_user_setup(&server) };
    let error = run_load(&setup, &ServerEndpoint::connect_first(&setup).unwrap(), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "cannot keep a thread to its CPU: Invalid argument (os error 22)");
}
