//! Loads on small servers with scripted behaviour.

mod departures;
mod secure;
mod server;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kelvin_model::load::{GeneratorLimit, Load, Offered};

use crate::pattern::Pattern;
use crate::request::Form;
use crate::schedule::{Spread, Think};
use crate::setup::{Demand, Setup};
use crate::verify::Verify;
use crate::{Error, Peer, load};
use server::{Server, Then, ok};

const NO_THOUGHT: Think = Think { mean: 0.0, spread: Spread::Constant };

/// A load of two users on the server for a fifth of a second.
fn setup(server: &Server) -> Setup {
    let target: crate::target::Target = server.url("/").parse().unwrap();
    Setup {
        paths: vec![target.path.clone()],
        target,
        pattern: Pattern::Random,
        form: Form::default(),
        demand: Demand::Users { users: 2, think: NO_THOUGHT },
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(200),
        timeout: Duration::from_secs(30),
        seed: 1,
        verify: Verify::Nothing,
        known: vec![None],
        tls: None,
        spin: false,
        goes_on: None,
    }
}

fn measured(setup: &Setup) -> Load {
    let load = load(setup, &Peer::reach(setup).unwrap(), &mut |_| {}).unwrap();
    // The generator's own use is what its schedule needs: it is woken up for something.
    let futile = load.generator.futile;
    assert!(futile <= 10 + load.connections, "{futile} times woken up for nothing: {load:?}");
    load
}

/// A load of two users on a server that answers each request so.
fn on(answer: impl Fn(u64) -> (Vec<u8>, Then) + Send + Sync + 'static) -> (Load, u64) {
    let server = Server::start(move |request| answer(request.number));
    let load = measured(&setup(&server));
    (load, server.served.load(Ordering::Relaxed))
}

#[test]
fn every_answer_is_counted_once_and_connections_are_kept() {
    let (load, served) = on(|_| (ok(b"hello"), Then::Stay));
    assert!(load.requests > 0 && load.requests <= served);
    // One of each user may be over after the measured time.
    assert!(served <= load.requests + 2, "{load:?}: {served}");
    assert_eq!((load.bytes, load.connections, load.errors.count()), (5 * load.requests, 2, 0));
    assert_eq!((load.response.count, load.service.count), (load.requests, load.requests));
    assert!(load.in_flight.is_some_and(|in_flight| in_flight <= 2.001), "{:?}", load.in_flight);
    assert!(matches!(load.offered, Offered::Users { users: 2, .. }));
}

#[test]
fn users_go_on_after_the_measured_time_for_whoever_looks_and_nothing_of_it_counts() {
    let server = Server::start(|_| (ok(b"hello"), Then::Stay));
    let goes_on = Arc::new(AtomicBool::new(true));
    let setup = Setup { goes_on: Some(Arc::clone(&goes_on)), ..setup(&server) };
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| measured(&setup));
        std::thread::sleep(2 * setup.duration);
        let served = server.served.load(Ordering::Relaxed);
        while server.served.load(Ordering::Relaxed) == served {
            std::thread::yield_now();
        }
        goes_on.store(false, Ordering::Relaxed);
        load.join().unwrap()
    });
    let served = server.served.load(Ordering::Relaxed);
    assert!(load.requests > 0 && load.requests + 2 < served, "{load:?}: {served}");
    assert_eq!((load.seconds, load.received, load.errors.count()), (0.2, 5 * load.requests, 0));
    assert!(load.in_flight.is_some_and(|in_flight| in_flight <= 2.001) && load.series.len() <= 1, "{load:?}");
}

#[test]
fn a_server_that_closes_after_each_answer_gets_a_connection_for_each_request() {
    let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi".to_vec();
    let (load, _) = on(move |_| (closing.clone(), Then::Close));
    assert!(load.requests > 0 && load.connections >= load.requests);
    assert_eq!(load.errors.count(), 0, "{:?}", load.errors);
    let (load, _) = on(|_| (b"HTTP/1.1 200 OK\r\n\r\nuntil the end".to_vec(), Then::Close));
    assert_eq!((load.bytes, load.errors.count()), (13 * load.requests, 0), "{:?}", load.errors);
}

#[test]
fn a_request_on_a_connection_that_the_server_closed_while_idle_is_sent_again() {
    let (load, _) = on(|number| (ok(b"x"), if number % 3 == 2 { Then::Close } else { Then::Stay }));
    assert!(load.requests > 6 && load.sent_again + load.connections > 2, "{load:?}");
    assert_eq!(load.errors.count(), 0, "{:?}", load.errors);
}

#[test]
fn what_is_no_right_answer_is_counted_apart() {
    let (load, _) = on(|number| match number % 3 {
        0 => (ok(b"fine"), Then::Stay),
        1 => (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(), Then::Stay),
        _ => (b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx".to_vec(), Then::Stay),
    });
    assert!(load.errors.status[&503] > 0 && load.errors.status[&404] > 0);
    assert_eq!(load.errors.count(), load.errors.status.values().sum::<u64>());
    assert_eq!(load.bytes, 4 * load.requests);
    let (load, _) = on(|_| (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".to_vec(), Then::Close));
    assert!(load.errors.short > 0 && load.requests == 0 && load.bytes == 0, "{load:?}");
    let (load, _) = on(|_| (b"SSH-2.0-x\r\n".to_vec(), Then::Close));
    assert!(load.errors.malformed > 0 && load.requests == 0, "{load:?}");
    let (load, _) = on(|_| (Vec::new(), Then::Close));
    assert!(load.errors.closed > 0 && load.requests == 0, "{load:?}");
    let (load, _) = on(|_| (b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n".to_vec(), Then::Stay));
    assert!(load.errors.status[&302] > 0 && load.requests == 0, "redirects are not followed: {load:?}");
}

#[test]
fn bytes_of_answers_that_are_not_whole_or_not_right_are_received() {
    let (load, served) = on(|_| (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec(), Then::Stay));
    assert_eq!((load.requests, load.bytes), (0, 0), "{load:?}");
    assert!(load.received > 0 && load.received <= 4 * served, "{load:?}: {served}");
    let (load, served) = on(|_| (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_vec(), Then::Stay));
    assert_eq!((load.bytes, load.received), (0, 4 * load.errors.count()), "{load:?}");
    assert!(load.received > 0 && load.received <= 4 * served);
}

#[test]
fn answers_that_come_at_once_are_received_when_they_are_whole() {
    let server = Server::start(|_| (ok(b"body"), Then::Stay));
    let load = measured(&Setup { warm_up: Duration::from_millis(50), ..setup(&server) });
    assert!(load.requests > 0 && load.received == load.bytes, "{load:?}");
}

#[test]
fn a_server_that_never_answers_is_given_up_after_the_time_out() {
    let server = Server::start(|_| (Vec::new(), Then::Stay));
    let load = measured(&Setup { timeout: Duration::from_millis(20), ..setup(&server) });
    assert!(load.errors.timed_out >= 2 && load.requests == 0, "{load:?}");
    assert_eq!(load.errors.first.as_deref(), Some("no answer within the time-out"));
}

#[test]
fn large_bodies_are_whole_by_length_and_by_chunks() {
    let body: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
    let chunked = server::chunked(&body);
    let whole = ok(&body);
    let server = Server::start(move |request| {
        (if request.number.is_multiple_of(2) { whole.clone() } else { chunked.clone() }, Then::Stay)
    });
    let mut setup = Setup { verify: Verify::Content, ..setup(&server) };
    setup.duration = Duration::from_secs(1);
    let load = measured(&setup);
    assert!(load.requests > 0);
    assert_eq!((load.bytes, load.errors.count()), (3_000_000 * load.requests, 0), "{:?}", load.errors);
}

#[test]
fn wrong_bytes_are_found_and_are_no_throughput() {
    let server = Server::start(|request| (ok(if request.number == 0 { b"right" } else { b"wrong" }), Then::Stay));
    let mut setup = setup(&server);
    setup.demand = Demand::Users { users: 1, think: NO_THOUGHT };
    let load = measured(&Setup { verify: Verify::Content, ..setup.clone() });
    assert_eq!(load.requests, 1);
    assert!(load.errors.wrong > 0 && load.errors.wrong == load.errors.count());
    let load = measured(&Setup { verify: Verify::Length, ..setup });
    assert_eq!(load.errors.count(), 0);
}

#[test]
fn an_open_loop_asks_for_every_request_that_is_due_whether_answers_come_or_not() {
    // The server is silent for the first 40 requests, and then answers all: none of them may be left out.
    let server = Server::start_serial(|request| {
        if request.number == 0 {
            while request.came() < 40 {
                std::thread::yield_now();
            }
        }
        (ok(b"x"), Then::Stay)
    });
    let mut setup = setup(&server);
    setup.demand = Demand::Rate { rate: 500.0, spread: Spread::Constant, connections: 100 };
    let load = measured(&setup);
    let Offered::Rate { due, .. } = load.offered else { panic!("{load:?}") };
    // Those due at 0, 2, ... 198 ms.
    assert_eq!((load.requests, load.response.count, (due * 0.2).round() as u64), (100, 100, 100), "{load:?}");
    assert_eq!((load.errors.count(), load.unanswered), (0, 0));
    assert!(load.response.max >= load.service.max);
}

#[test]
fn a_generator_that_was_kept_from_sending_says_that_the_slow_tail_is_its_own() {
    let server = Server::start(|_| (ok(b"x"), Then::Stay));
    let mut setup = setup(&server);
    setup.demand = Demand::Rate { rate: 500.0, spread: Spread::Constant, connections: 100 };
    // Whoever watches the load keeps its only thread for 25 requests each time.
    let watch = &mut |_: &[_]| std::thread::sleep(Duration::from_millis(50));
    let load = load(&setup, &Peer::reach(&setup).unwrap(), watch).unwrap();
    let own = load.generator.own;
    assert!(matches!(load.generator.limit, Some(GeneratorLimit::Late { .. })), "{load:?}");
    assert!(own.count == load.response.count && own.max >= 40e6 && load.generator.late.max >= 40e6, "{load:?}");
    assert!(load.generator.slow_tail.is_some_and(|share| share > 0.05 && share <= 1.001), "{load:?}");
    assert!(!load.generator.cpus.is_empty());
}

/// All are sent, most of them after a measured time that is shorter than a call of the system takes.
#[test]
fn a_generator_that_is_later_than_its_schedule_is_long_has_left_out_no_more_than_all() {
    let server = Server::start(|_| (ok(b"x"), Then::Stay));
    let mut setup = setup(&server);
    setup.demand = Demand::Log { times: (0..6).map(|number| number * 800).collect(), connections: 6 };
    setup.duration = Duration::from_micros(5);
    let load = measured(&setup);
    let Some(GeneratorLimit::Late { share }) = load.generator.limit else { panic!("{load:?}") };
    assert!(share > 0.5 && share < 1.0, "{share}: {load:?}");
}

/// A measured time that is no multiple of the time between two requests has one more than its part of the rate.
#[test]
fn an_even_rate_is_what_was_asked_for_however_short_the_measured_time_is() {
    let server = Server::start(|_| (ok(b"x"), Then::Stay));
    let mut setup = setup(&server);
    for (rate, milliseconds, requests) in [(7.0, 300, 3), (1.0, 100, 1), (33.3, 200, 7)] {
        setup.demand = Demand::Rate { rate, spread: Spread::Constant, connections: 10 };
        setup.duration = Duration::from_millis(milliseconds);
        let load = measured(&setup);
        let Offered::Rate { due, .. } = load.offered else { panic!("{load:?}") };
        assert_eq!(load.requests, requests, "{load:?}");
        assert!((due / rate - 1.0).abs() < 1e-9, "{due}");
        // The last answer may come late, and none comes before its request is due.
        assert!(load.rate() < rate * (1.0 + 1e-9), "{rate} {}", load.rate());
    }
}

#[test]
fn with_too_few_connections_requests_wait_and_that_is_said() {
    let server = Server::start_serial(|request| {
        if request.number == 0 {
            request.wait(Duration::from_millis(50));
        }
        (ok(b"x"), Then::Stay)
    });
    let mut setup = setup(&server);
    setup.demand = Demand::Rate { rate: 1000.0, spread: Spread::Exponential, connections: 1 };
    let load = measured(&setup);
    let Offered::Rate { waited, .. } = load.offered else { panic!("{load:?}") };
    assert!(waited > 0 && load.connections == 1, "{load:?}");
    assert_eq!(load.errors.count(), 0);
}

#[test]
fn what_no_answer_came_to_counts_with_the_time_it_waited() {
    let server = Server::start(|_| (Vec::new(), Then::Stay));
    let mut setup = setup(&server);
    setup.demand = Demand::Rate { rate: 100.0, spread: Spread::Constant, connections: 5 };
    let load = measured(&setup);
    assert_eq!((load.requests, load.unanswered, load.response.count), (0, 20, 20), "{load:?}");
    assert_eq!((load.errors.count(), load.failed()), (0, 20));
    setup.demand = Demand::Users { users: 3, think: NO_THOUGHT };
    assert_eq!(measured(&setup).failed(), 3, "of users who had no answer at all");
}

#[test]
fn head_has_no_body_and_a_body_is_sent() {
    let server = Server::start(|request| match request.head.split(' ').next() {
        Some("HEAD") => (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".to_vec(), Then::Stay),
        Some("POST") if request.body == b"given" => (ok(b"yes"), Then::Stay),
        _ => (b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n".to_vec(), Then::Stay),
    });
    let mut setup = setup(&server);
    setup.form.method = http::Method::HEAD;
    let load = measured(&setup);
    assert!(load.requests > 0 && load.bytes == 0 && load.errors.count() == 0, "{load:?}");
    setup.form = Form { method: http::Method::POST, body: b"given".to_vec(), ..Form::default() };
    let load = measured(&setup);
    assert!(load.requests > 0 && load.bytes == 3 * load.requests && load.errors.count() == 0, "{load:?}");
}

#[test]
fn a_server_that_is_not_there_is_one_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::start(|_| (ok(b""), Then::Stay));
    let setup = Setup { target: format!("http://{free}/").parse().unwrap(), ..setup(&server) };
    assert!(matches!(Peer::reach(&setup), Err(Error::Connect { .. })));
}

#[test]
fn a_server_that_goes_away_is_counted_and_not_asked_without_end() {
    let server = Server::start(|request| (ok(b"x"), if request.number > 4 { Then::Stop } else { Then::Stay }));
    let load = measured(&setup(&server));
    assert!(load.requests <= 7 && load.errors.count() > 0, "{load:?}");
    // Two users who pause a tenth of a second after each failure.
    assert!(load.errors.count() <= 8, "{load:?}");
}

#[test]
fn a_connection_whose_request_was_answered_early_takes_no_other_one() {
    let (address, heads) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let (listener, seen) = (address.try_clone().unwrap(), Arc::clone(&heads));
    std::thread::spawn(move || {
        // Answers each connection by its first line, reads no further, and leaves it open.
        let mut open = Vec::new();
        for mut socket in listener.incoming().flatten() {
            let mut line = String::new();
            if BufReader::with_capacity(1, &socket).read_line(&mut line).is_ok_and(|length| length > 0) {
                seen.lock().unwrap().push(line);
                let _ = socket.write_all(&ok(b"early"));
            }
            open.push(socket);
        }
    });
    let plain = Server::start(|_| (ok(b""), Then::Stay));
    let mut setup = setup(&plain);
    setup.target = format!("http://{}/", address.local_addr().unwrap()).parse().unwrap();
    setup.demand = Demand::Users { users: 1, think: NO_THOUGHT };
    setup.form = Form { method: http::Method::POST, body: vec![b'x'; 32 << 20], ..Form::default() };
    let load = measured(&setup);
    assert!(load.requests > 1 && load.connections >= load.requests && load.errors.count() == 0, "{load:?}");
    assert!(heads.lock().unwrap().iter().all(|line| line == "POST / HTTP/1.1\r\n"));
}

#[test]
fn a_rate_that_no_connection_can_keep_ends_in_time() {
    let server = Server::start(|_| (ok(b"x"), Then::Stay));
    let mut setup = setup(&server);
    // More than a thread sends, to an address that refuses each connection at once.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    setup.demand = Demand::Rate { rate: 1e6, spread: Spread::Constant, connections: 10 };
    let load = load(&setup, &Peer { address: free, tls: None }, &mut |_| {}).unwrap();
    let Offered::Rate { due, .. } = load.offered else { panic!("{load:?}") };
    assert_eq!((load.requests, (due * 0.2).round() as u64), (0, 200_000), "{load:?}");
}
