//! Loads on small servers with scripted behaviour.

mod departures;
mod groups;
#[cfg(feature = "http2")]
mod http2;
mod server;
mod threads;
#[cfg(feature = "tls")]
mod tls;
mod unix_socket;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kelvin_core::load::{GeneratorLimit, LoadResult, OfferedLoad};
use proptest::prelude::*;

use crate::load::access_pattern::AccessPattern;
use crate::load::load_share::LoadShare;
use crate::load::request::RequestTemplate;
use crate::load::schedule::{ThinkTime, TimeDistribution};
use crate::load::setup::{Demand, GeneratorThreads, LoadSetup};
use crate::load::start_time::StartTime;
use crate::load::verify::Verify;
use crate::load::{Error, ServerAddress, ServerEndpoint, run_load};
use server::{AfterAnswer, ScriptedServer, ok};

const ZERO_THINK_TIME: ThinkTime = ThinkTime { mean: 0.0, distribution: TimeDistribution::Constant };

/// A load of two users on the server for a fifth of a second.
fn two_user_setup(server: &ScriptedServer) -> LoadSetup {
    let target: crate::load::server_url::ServerUrl = server.url("/").parse().unwrap();
    LoadSetup {
        paths: vec![target.path.clone()],
        target,
        unix_socket: None,
        pattern: AccessPattern::Random,
        template: RequestTemplate::default(),
        templates: Vec::new(),
        kinds: Vec::new(),
        demand: Demand::Users { users: 2, think: ZERO_THINK_TIME },
        share: LoadShare::WHOLE,
        start: StartTime::Now,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(200),
        requests: None,
        timeout: Duration::from_secs(30),
        seed: 1,
        verify: Verify::Nothing,
        expected_bodies: vec![None],
        tls: None,
        http2_streams: None,
        threads: GeneratorThreads::Unpinned(1),
        spin: false,
        extension: None,
    }
}

fn measure(setup: &LoadSetup) -> LoadResult {
    let load = run_load(setup, &ServerEndpoint::connect_first(setup).unwrap(), &mut |_| {}).unwrap().result;
    // The generator's own use is what its schedule needs: it is woken up for something.
    let futile = load.generator.spurious_wakeups;
    assert!(futile <= 10 + load.connections, "{futile} times woken up for nothing: {load:?}");
    load
}

/// A load of two users on a server that answers each request so.
fn measure_answers(answer: impl Fn(u64) -> (Vec<u8>, AfterAnswer) + Send + Sync + 'static) -> (LoadResult, u64) {
    let server = ScriptedServer::start(move |request| answer(request.number));
    let load = measure(&two_user_setup(&server));
    (load, server.answer_count.load(Ordering::Relaxed))
}

#[test]
fn answers_are_counted_and_connections_reused() {
    let (load, answer_count) = measure_answers(|_| (ok(b"hello"), AfterAnswer::Stay));
    assert!(load.requests > 0 && load.requests <= answer_count);
    // One of each user may be over after the measured time.
    assert!(answer_count <= load.requests + 2, "{load:?}: {answer_count}");
    assert_eq!((load.bytes, load.connections, load.errors.count()), (5 * load.requests, 2, 0));
    assert_eq!((load.response.count, load.service.count), (load.requests, load.requests));
    assert!(load.in_flight.is_some_and(|in_flight| in_flight <= 2.001), "{:?}", load.in_flight);
    assert!(matches!(load.offered, OfferedLoad::Users { users: 2, .. }));
}

#[test]
fn extended_load_is_not_counted() {
    let server = ScriptedServer::start(|_| (ok(b"hello"), AfterAnswer::Stay));
    let extension = Arc::new(AtomicBool::new(true));
    let setup = LoadSetup { extension: Some(Arc::clone(&extension)), ..two_user_setup(&server) };
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| measure(&setup));
        std::thread::sleep(2 * setup.duration);
        let answer_count = server.answer_count.load(Ordering::Relaxed);
        while server.answer_count.load(Ordering::Relaxed) == answer_count {
            std::thread::yield_now();
        }
        extension.store(false, Ordering::Relaxed);
        load.join().unwrap()
    });
    let answer_count = server.answer_count.load(Ordering::Relaxed);
    assert!(load.requests > 0 && load.requests + 2 < answer_count, "{load:?}: {answer_count}");
    assert_eq!((load.seconds, load.received, load.errors.count()), (0.2, 5 * load.requests, 0));
    assert!(load.in_flight.is_some_and(|in_flight| in_flight <= 2.001) && load.series.len() <= 1, "{load:?}");
}

/// However they are sent, as many come to the server, and none waits for the end of the longest time.
#[test]
fn limited_requests_are_sent_exactly() {
    let users = |users| Demand::Users { users, think: ZERO_THINK_TIME };
    let rate = |arrivals| Demand::Rate { rate: 2000.0, arrivals, connections: 20 };
    // Answers of an open loop without a limit are waited for 2 s.
    for (demand, requests, threads, slowest) in [
        (users(1), 1, 1, 0),
        (users(7), 50, 1, 20),
        (users(7), 50, 3, 20),
        (users(7), 2, 3, 0),
        (rate(TimeDistribution::Constant), 61, 1, 2200),
        (rate(TimeDistribution::Exponential), 61, 3, 20),
    ] {
        let server = ScriptedServer::start(move |request| {
            if request.number == 1 {
                request.wait(Duration::from_millis(slowest));
            }
            let is_error = request.number % 5 == 4;
            let error = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
            (if is_error { error.to_vec() } else { ok(b"x") }, AfterAnswer::Stay)
        });
        let mut setup = LoadSetup { demand, threads: GeneratorThreads::Unpinned(threads), ..two_user_setup(&server) };
        setup.limit_requests(requests, None).unwrap();
        let load = measure(&setup);
        let (wanted, sent) = (u64::from(requests), server.answer_count.load(Ordering::Relaxed));
        assert_eq!((load.requests + load.errors.count(), sent), (wanted, wanted), "{load:?}");
        assert_eq!((load.errors.status.get(&404).copied().unwrap_or(0), load.unanswered), (wanted / 5, 0), "{load:?}");
        assert!(load.seconds > 0.0 && load.seconds < 60.0, "{load:?}");
    }
}

#[test]
fn earlier_of_limit_and_time_ends_the_load() {
    let server = ScriptedServer::start(|_| (ok(b"x"), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    setup.limit_requests(1_000_000_000, Some(Duration::from_millis(50))).unwrap();
    assert_eq!(measure(&setup).seconds, 0.05);
    setup.demand = Demand::Rate { rate: 100.0, arrivals: TimeDistribution::Constant, connections: 5 };
    for (requests, time, expected) in [(10, 50, (50, None)), (10, 500, (100, Some(10)))] {
        setup.limit_requests(requests, Some(Duration::from_millis(time))).unwrap();
        assert_eq!((setup.duration.as_millis(), setup.requests), expected);
    }
    assert!(setup.limit_requests(u32::MAX, None).unwrap_err().contains("a week"));
}

#[test]
fn each_request_has_its_own_connection_without_keep_alive() {
    let server = ScriptedServer::start(|request| {
        let is_announced = request.head.contains("\r\nConnection: close\r\n");
        (if is_announced { ok(b"x") } else { Vec::new() }, AfterAnswer::Stay)
    });
    let mut setup = two_user_setup(&server);
    setup.template.closes_connections = true;
    setup.limit_requests(20, None).unwrap();
    let load = measure(&setup);
    assert_eq!((load.requests, load.connections, load.errors.count()), (20, 20, 0), "{load:?}");
}

#[test]
fn closing_server_gets_connection_per_request() {
    let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi".to_vec();
    let (load, _) = measure_answers(move |_| (closing.clone(), AfterAnswer::Close));
    assert!(load.requests > 0 && load.connections >= load.requests);
    assert_eq!(load.errors.count(), 0, "{:?}", load.errors);
    let (load, _) = measure_answers(|_| (b"HTTP/1.1 200 OK\r\n\r\nuntil the end".to_vec(), AfterAnswer::Close));
    assert_eq!((load.bytes, load.errors.count()), (13 * load.requests, 0), "{:?}", load.errors);
}

#[test]
fn request_on_idle_closed_connection_is_retried() {
    let (load, _) =
        measure_answers(|number| (ok(b"x"), if number % 3 == 2 { AfterAnswer::Close } else { AfterAnswer::Stay }));
    assert!(load.requests > 6 && load.resent + load.connections > 2, "{load:?}");
    assert_eq!(load.errors.count(), 0, "{:?}", load.errors);
}

#[test]
fn wrong_answers_are_counted_apart() {
    let (load, _) = measure_answers(|number| match number % 3 {
        0 => (ok(b"fine"), AfterAnswer::Stay),
        1 => (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(), AfterAnswer::Stay),
        _ => (b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx".to_vec(), AfterAnswer::Stay),
    });
    assert!(load.errors.status[&503] > 0 && load.errors.status[&404] > 0);
    assert_eq!(load.errors.count(), load.errors.status.values().sum::<u64>());
    assert_eq!(load.bytes, 4 * load.requests);
    let (load, _) =
        measure_answers(|_| (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".to_vec(), AfterAnswer::Close));
    assert!(load.errors.short > 0 && load.requests == 0 && load.bytes == 0, "{load:?}");
    let (load, _) = measure_answers(|_| (b"SSH-2.0-x\r\n".to_vec(), AfterAnswer::Close));
    assert!(load.errors.malformed > 0 && load.requests == 0, "{load:?}");
    let (load, _) = measure_answers(|_| (Vec::new(), AfterAnswer::Close));
    assert!(load.errors.closed > 0 && load.requests == 0, "{load:?}");
    let (load, _) = measure_answers(|_| {
        (b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n".to_vec(), AfterAnswer::Stay)
    });
    assert!(load.errors.status[&302] > 0 && load.requests == 0, "redirects are not followed: {load:?}");
}

#[test]
fn incomplete_answers_count_as_received_bytes() {
    let (load, answer_count) =
        measure_answers(|_| (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec(), AfterAnswer::Stay));
    assert_eq!((load.requests, load.bytes), (0, 0), "{load:?}");
    assert!(load.received > 0 && load.received <= 4 * answer_count, "{load:?}: {answer_count}");
    let (load, answer_count) =
        measure_answers(|_| (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_vec(), AfterAnswer::Stay));
    assert_eq!((load.bytes, load.received), (0, 4 * load.errors.count()), "{load:?}");
    assert!(load.received > 0 && load.received <= 4 * answer_count);
}

#[test]
fn immediate_answers_are_complete() {
    let server = ScriptedServer::start(|_| (ok(b"body"), AfterAnswer::Stay));
    let load = measure(&LoadSetup { warm_up: Duration::from_millis(50), ..two_user_setup(&server) });
    assert!(load.requests > 0 && load.received == load.bytes, "{load:?}");
}

#[test]
fn unresponsive_server_times_out() {
    let server = ScriptedServer::start(|_| (Vec::new(), AfterAnswer::Stay));
    let load = measure(&LoadSetup { timeout: Duration::from_millis(20), ..two_user_setup(&server) });
    assert!(load.errors.timed_out >= 2 && load.requests == 0, "{load:?}");
    assert_eq!(load.errors.first.as_deref(), Some("no answer within the time-out"));
}

#[test]
fn large_bodies_arrive_by_length_and_chunks() {
    let body: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
    let chunked = server::chunked(&body);
    let with_length = ok(&body);
    let server = ScriptedServer::start(move |request| {
        (if request.number.is_multiple_of(2) { with_length.clone() } else { chunked.clone() }, AfterAnswer::Stay)
    });
    let mut setup = LoadSetup { verify: Verify::Content, ..two_user_setup(&server) };
    setup.duration = Duration::from_secs(1);
    let load = measure(&setup);
    assert!(load.requests > 0);
    assert_eq!((load.bytes, load.errors.count()), (3_000_000 * load.requests, 0), "{:?}", load.errors);
}

#[test]
fn wrong_bytes_are_not_throughput() {
    let server =
        ScriptedServer::start(|request| (ok(if request.number == 0 { b"right" } else { b"wrong" }), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    setup.demand = Demand::Users { users: 1, think: ZERO_THINK_TIME };
    let load = measure(&LoadSetup { verify: Verify::Content, ..setup.clone() });
    assert_eq!(load.requests, 1);
    assert!(load.errors.wrong > 0 && load.errors.wrong == load.errors.count());
    let load = measure(&LoadSetup { verify: Verify::Length, ..setup });
    assert_eq!(load.errors.count(), 0);
}

#[test]
fn open_loop_ignores_missing_answers() {
    // The server is silent for the first 40 requests, and then answers all: none of them may be left out.
    let server = ScriptedServer::start_serial(|request| {
        if request.number == 0 {
            while request.request_count() < 40 {
                std::thread::yield_now();
            }
        }
        (ok(b"x"), AfterAnswer::Stay)
    });
    let mut setup = two_user_setup(&server);
    setup.demand = Demand::Rate { rate: 500.0, arrivals: TimeDistribution::Constant, connections: 100 };
    let load = measure(&setup);
    let OfferedLoad::Rate { due, .. } = load.offered else { panic!("{load:?}") };
    // Those due at 0, 2, ... 198 ms.
    assert_eq!((load.requests, load.response.count, (due * 0.2).round() as u64), (100, 100, 100), "{load:?}");
    assert_eq!((load.errors.count(), load.unanswered), (0, 0));
    assert!(load.response.max >= load.service.max);
}

#[test]
fn blocked_generator_reports_own_tail() {
    let server = ScriptedServer::start(|_| (ok(b"x"), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    setup.demand = Demand::Rate { rate: 500.0, arrivals: TimeDistribution::Constant, connections: 100 };
    // The observer of the load blocks its only thread for 25 requests each time.
    let observer = &mut |_: &[_]| std::thread::sleep(Duration::from_millis(50));
    let load = run_load(&setup, &ServerEndpoint::connect_first(&setup).unwrap(), observer).unwrap().result;
    let own_delay = load.generator.own_delay;
    assert!(matches!(load.generator.limit, Some(GeneratorLimit::Late { .. })), "{load:?}");
    assert!(
        own_delay.count == load.response.count && own_delay.max >= 40e6 && load.generator.late.max >= 40e6,
        "{load:?}"
    );
    assert!(load.generator.slow_tail.is_some_and(|share| share > 0.05 && share <= 1.001), "{load:?}");
    assert!(!load.generator.cpus.is_empty());
}

/// All are sent, most of them after a measured time that is shorter than a call of the system takes.
#[test]
fn very_late_generator_loses_at_most_all() {
    let server = ScriptedServer::start(|_| (ok(b"x"), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    setup.demand = Demand::Log { times: (0..6).map(|number| number * 800).collect(), connections: 6 };
    setup.duration = Duration::from_micros(5);
    let load = measure(&setup);
    let Some(GeneratorLimit::Late { share }) = load.generator.limit else { panic!("{load:?}") };
    assert!(share > 0.5 && share < 1.0, "{share}: {load:?}");
}

/// A measured time that is no multiple of the time between two requests has one more than its part of the rate.
#[test]
fn short_constant_rate_load_is_exact() {
    let server = ScriptedServer::start(|_| (ok(b"x"), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    for (rate, milliseconds, requests) in [(7.0, 300, 3), (1.0, 100, 1), (33.3, 200, 7)] {
        setup.demand = Demand::Rate { rate, arrivals: TimeDistribution::Constant, connections: 10 };
        setup.duration = Duration::from_millis(milliseconds);
        let load = measure(&setup);
        let OfferedLoad::Rate { due, .. } = load.offered else { panic!("{load:?}") };
        assert_eq!(load.requests, requests, "{load:?}");
        assert!((due / rate - 1.0).abs() < 1e-9, "{due}");
        // The last answer may come late, and none comes before its request is due.
        assert!(load.rate() < rate * (1.0 + 1e-9), "{rate} {}", load.rate());
    }
}

#[test]
fn connection_shortage_is_reported() {
    let server = ScriptedServer::start_serial(|request| {
        if request.number == 0 {
            request.wait(Duration::from_millis(50));
        }
        (ok(b"x"), AfterAnswer::Stay)
    });
    let mut setup = two_user_setup(&server);
    setup.demand = Demand::Rate { rate: 1000.0, arrivals: TimeDistribution::Exponential, connections: 1 };
    let load = measure(&setup);
    let OfferedLoad::Rate { delayed, .. } = load.offered else { panic!("{load:?}") };
    assert!(delayed > 0 && load.connections == 1, "{load:?}");
    assert_eq!(load.errors.count(), 0);
}

#[test]
fn unanswered_requests_count_their_wait() {
    let server = ScriptedServer::start(|_| (Vec::new(), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    setup.demand = Demand::Rate { rate: 100.0, arrivals: TimeDistribution::Constant, connections: 5 };
    let load = measure(&setup);
    assert_eq!((load.requests, load.unanswered, load.response.count), (0, 20, 20), "{load:?}");
    assert_eq!((load.errors.count(), load.failed_requests()), (0, 20));
    setup.demand = Demand::Users { users: 3, think: ZERO_THINK_TIME };
    assert_eq!(measure(&setup).failed_requests(), 3, "of users who had no answer at all");
}

#[test]
fn post_has_body_and_head_has_none() {
    let server = ScriptedServer::start(|request| match request.head.split(' ').next() {
        Some("HEAD") => (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".to_vec(), AfterAnswer::Stay),
        Some("POST") if request.body == b"given" => (ok(b"yes"), AfterAnswer::Stay),
        _ => (b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n".to_vec(), AfterAnswer::Stay),
    });
    let mut setup = two_user_setup(&server);
    setup.template.method = http::Method::HEAD;
    let load = measure(&setup);
    assert!(load.requests > 0 && load.bytes == 0 && load.errors.count() == 0, "{load:?}");
    setup.template =
        RequestTemplate { method: http::Method::POST, body: b"given".to_vec(), ..RequestTemplate::default() };
    let load = measure(&setup);
    assert!(load.requests > 0 && load.bytes == 3 * load.requests && load.errors.count() == 0, "{load:?}");
}

#[test]
fn absent_server_is_one_error() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = ScriptedServer::start(|_| (ok(b""), AfterAnswer::Stay));
    let setup = LoadSetup { target: format!("http://{address}/").parse().unwrap(), ..two_user_setup(&server) };
    assert!(matches!(ServerEndpoint::connect_first(&setup), Err(Error::Connect(..))));
}

#[test]
fn vanished_server_is_retried_slowly() {
    let server = ScriptedServer::start(|request| {
        (ok(b"x"), if request.number > 4 { AfterAnswer::Stop } else { AfterAnswer::Stay })
    });
    let load = measure(&two_user_setup(&server));
    assert!(load.requests <= 7 && load.errors.count() > 0, "{load:?}");
    // Two users who pause a tenth of a second after each failure.
    assert!(load.errors.count() <= 8, "{load:?}");
}

#[test]
fn early_answered_connection_is_not_reused() {
    let (address, heads) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let (listener, received_heads) = (address.try_clone().unwrap(), Arc::clone(&heads));
    std::thread::spawn(move || {
        // Answers each connection by its first line, reads no further, and leaves it open.
        let mut open = Vec::new();
        for mut socket in listener.incoming().flatten() {
            let mut line = String::new();
            if BufReader::with_capacity(1, &socket).read_line(&mut line).is_ok_and(|length| length > 0) {
                received_heads.lock().unwrap().push(line);
                let _ = socket.write_all(&ok(b"early"));
            }
            open.push(socket);
        }
    });
    let server = ScriptedServer::start(|_| (ok(b""), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    setup.target = format!("http://{}/", address.local_addr().unwrap()).parse().unwrap();
    setup.demand = Demand::Users { users: 1, think: ZERO_THINK_TIME };
    setup.template =
        RequestTemplate { method: http::Method::POST, body: vec![b'x'; 32 << 20], ..RequestTemplate::default() };
    let load = measure(&setup);
    assert!(load.requests > 1 && load.connections >= load.requests && load.errors.count() == 0, "{load:?}");
    assert!(heads.lock().unwrap().iter().all(|line| line == "POST / HTTP/1.1\r\n"));
}

#[test]
fn unsustainable_rate_ends_in_time() {
    let server = ScriptedServer::start(|_| (ok(b"x"), AfterAnswer::Stay));
    let mut setup = two_user_setup(&server);
    // More than a thread sends, to an address that refuses each connection at once.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    setup.demand = Demand::Rate { rate: 1e6, arrivals: TimeDistribution::Constant, connections: 10 };
    let load = run_load(&setup, &ServerEndpoint { address: ServerAddress::Tcp(address), tls: None }, &mut |_| {})
        .unwrap()
        .result;
    let OfferedLoad::Rate { due, .. } = load.offered else { panic!("{load:?}") };
    assert_eq!((load.requests, (due * 0.2).round() as u64), (0, 200_000), "{load:?}");
}

/// A text with a few letters changed, put in or left out.
pub(super) fn damaged(text: &'static str) -> impl Strategy<Value = String> {
    let change = (any::<proptest::sample::Index>(), 0u8..3, any::<char>());
    proptest::collection::vec(change, 1..6).prop_map(|changes| {
        let mut letters: Vec<char> = text.chars().collect();
        for (position, kind, letter) in changes {
            let position = position.index(letters.len());
            match kind {
                0 => letters.insert(position, letter),
                1 => drop(letters.remove(position)),
                _ => letters[position] = letter,
            }
        }
        letters.into_iter().collect()
    })
}
