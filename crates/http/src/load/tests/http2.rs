//! Loads by HTTP/2 on a server of this test, in order and hostile.

mod server;
#[cfg(feature = "tls")]
mod tls;

use std::net::TcpStream;

use h2::Reason;
use h2::server::Builder;
use kelvin_core::load::Http2Figures;

use super::*;
use server::{Http2Server, Reply, frame, read_all, settings, start_raw};

/// A load of this demand, with so many requests on a connection, for a fifth of a second.
fn http2_setup(url: &str, demand: Demand, streams: u32) -> LoadSetup {
    let server = ScriptedServer::start(|_| (ok(b""), AfterAnswer::Stay));
    let target: crate::load::server_url::ServerUrl = url.parse().unwrap();
    let paths = vec![target.path.clone()];
    LoadSetup { target, paths, demand, http2_streams: Some(streams), ..two_user_setup(&server) }
}

fn users(users: u32) -> Demand {
    Demand::Users { users, think: ZERO_THINK_TIME }
}

fn hello(_: u64) -> Reply {
    Reply::Answer(200, b"hello".to_vec())
}

/// Forty requests of four users to a server that answers each so.
fn measure_replies(streams: u32, script: impl Fn(u64) -> Reply + Send + Sync + 'static) -> LoadResult {
    let mut setup = http2_setup(&Http2Server::start(script).url("/"), users(4), streams);
    setup.limit_requests(40, None).unwrap();
    let load = measure(&setup);
    assert_eq!(load.requests + load.errors.count(), 40, "{load:?}");
    load
}

fn figures(load: &LoadResult) -> Http2Figures {
    load.http2.unwrap()
}

#[test]
fn users_share_connections() {
    let server = Http2Server::start(hello);
    for (count, streams, connections) in [(6, 3, 2), (7, 3, 3), (5, 100, 1), (3, 1, 3)] {
        let before = server.request_count();
        let load = measure(&http2_setup(&server.url("/a?b"), users(count), streams));
        let served = server.request_count() - before;
        assert!(load.requests > 0 && (load.requests..=load.requests + u64::from(count)).contains(&served), "{load:?}");
        assert_eq!(
            (load.bytes, load.errors.count(), load.connections),
            (5 * load.requests, 0, connections),
            "{load:?}"
        );
        assert_eq!((load.response.count, load.service.count), (load.requests, load.requests));
        assert!(load.in_flight.is_some_and(|in_flight| in_flight <= f64::from(count) + 0.001), "{load:?}");
        assert_eq!(figures(&load), Http2Figures { streams, ..Http2Figures::default() });
    }
    assert!(server.seen.most_at_once.load(Ordering::Relaxed) <= 5);
}

#[test]
fn requests_at_a_rate_are_all_sent() {
    let server = Http2Server::start(|_| Reply::Echo(Duration::from_millis(3)));
    let demand = Demand::Rate { rate: 500.0, arrivals: TimeDistribution::Constant, connections: 2 };
    let load = measure(&http2_setup(&server.url("/"), demand, 4));
    // At 0, 2, ... 198 ms.
    assert_eq!((load.requests, server.request_count(), load.errors.count()), (100, 100, 0), "{load:?}");
    assert!((1..=2).contains(&load.connections) && load.response.p50 >= 2.9e6, "{load:?}");
}

#[test]
fn limited_requests_of_threads_are_sent_exactly() {
    for (demand, threads) in [
        (users(7), 1),
        (users(7), 3),
        (Demand::Rate { rate: 2000.0, arrivals: TimeDistribution::Exponential, connections: 3 }, 3),
    ] {
        let server =
            Http2Server::start(|number| if number % 5 == 4 { Reply::Answer(404, Vec::new()) } else { hello(number) });
        let mut setup = http2_setup(&server.url("/"), demand, 2);
        setup.threads = GeneratorThreads::Unpinned(threads);
        setup.limit_requests(60, None).unwrap();
        let load = measure(&setup);
        assert_eq!((load.requests, load.errors.status[&404], server.request_count()), (48, 12, 60), "{load:?}");
    }
}

/// The server sees no more at once than it allows, and what waits for that is told.
#[test]
fn limit_of_the_server_is_kept_and_reported() {
    for allowed in [1, 2] {
        let mut builder = Builder::new();
        builder.max_concurrent_streams(allowed);
        let server = Http2Server::start_with(builder, None, hello);
        let mut setup = http2_setup(&server.url("/"), users(4), 4);
        setup.limit_requests(40, None).unwrap();
        let load = measure(&setup);
        let http2 = figures(&load);
        assert!(load.requests == 40 && load.errors.count() == 0 && http2.limited_requests > 2, "{load:?}");
        assert_eq!((http2.allowed_streams, http2.limited_connections, http2.refused), (Some(allowed), 1, 0));
        assert!(server.seen.most_at_once.load(Ordering::Relaxed) <= u64::from(allowed));
        assert!(load.in_flight.unwrap() <= f64::from(allowed) + 0.001, "{load:?}");
    }
}

#[test]
fn server_that_ends_connections_gets_new_ones() {
    let load = measure_replies(2, |number| if number % 7 == 6 { Reply::GoAway } else { hello(number) });
    let http2 = figures(&load);
    assert!(load.requests > 14 && http2.goaways > 0 && load.connections > 2, "{load:?}");
    assert_eq!(load.errors.count(), 0, "{load:?}");
    // Without a word, after answers: a request that it has not read is sent again.
    let load = measure_replies(1, |number| if number % 7 == 6 { Reply::Close } else { hello(number) });
    assert!(load.requests > 14 && load.connections > 4 && load.resent > 0, "{load:?}");
    // A server that ends every connection before its first answer.
    let load = measure_replies(2, |_| Reply::RefuseAll);
    assert_eq!((load.requests, load.errors.count()), (0, 40), "{load:?}");
}

#[test]
fn reset_streams_are_errors() {
    let load = measure_replies(4, |_| Reply::Reset(Reason::INTERNAL_ERROR));
    assert!(load.errors.reset > 0 && load.errors.count() == load.errors.reset && load.resent == 0, "{load:?}");
    assert!(load.errors.first.as_ref().unwrap().contains("HTTP/2: "), "{load:?}");
    // What the server declares to have left undone is sent once more.
    let load = measure_replies(4, |_| Reply::Reset(Reason::REFUSED_STREAM));
    assert!(load.errors.reset > 0 && load.resent >= load.errors.reset, "{load:?}");
    assert!(figures(&load).refused >= 2 * load.errors.reset, "{load:?}");
    let load = measure_replies(1, |number| match number % 3 {
        0 => Reply::Reset(Reason::REFUSED_STREAM),
        _ => hello(number),
    });
    assert!(load.requests > 0 && load.errors.count() <= load.requests, "{load:?}");
}

#[test]
fn wrong_answers_by_http2_are_counted_apart() {
    let load = measure_replies(2, |number| match number % 3 {
        0 => hello(number),
        1 => Reply::Answer(503, b"busy".to_vec()),
        _ => Reply::Answer(404, Vec::new()),
    });
    assert!(
        load.errors.status[&503] > 0 && load.errors.status[&404] > 0 && load.bytes == 5 * load.requests,
        "{load:?}"
    );
    let load = measure_replies(2, |_| Reply::Short(4));
    assert!(load.errors.short > 0 && load.errors.short == load.errors.count(), "{load:?}");
    let load = measure_replies(2, |_| Reply::LargeHeader(100_000));
    assert_eq!((load.requests, load.errors.malformed), (0, 40), "{load:?}");
    let load = measure_replies(2, |_| Reply::LargeHeader(30_000));
    assert_eq!((load.requests, load.errors.count()), (40, 0), "{load:?}");
}

#[test]
fn bodies_are_verified_and_windows_do_not_limit() {
    let body: Vec<u8> = (0..3_000_000u32).map(|number| number as u8).collect();
    let right = body.clone();
    let server = Http2Server::start(move |_| Reply::Answer(200, right.clone()));
    let mut setup = http2_setup(&server.url("/"), users(2), 2);
    setup.verify = Verify::Content;
    setup.limit_requests(6, None).unwrap();
    let load = measure(&setup);
    assert!(load.requests == 6 && load.received >= load.bytes, "{load:?}");
    assert_eq!((load.bytes, load.errors.count()), (3_000_000 * load.requests, 0), "{load:?}");
    let server =
        Http2Server::start(|number| Reply::Answer(200, if number == 0 { b"right" } else { b"wrong" }.to_vec()));
    let load = measure(&LoadSetup { verify: Verify::Content, ..http2_setup(&server.url("/"), users(1), 1) });
    assert!(load.requests == 1 && load.errors.wrong > 0 && load.errors.wrong == load.errors.count(), "{load:?}");
}

#[test]
fn bodies_are_sent_as_the_window_of_the_server_allows() {
    let post = |window: u32| {
        let mut builder = Builder::new();
        builder.initial_window_size(window);
        let server = Http2Server::start_with(builder, None, |_| Reply::Echo(Duration::ZERO));
        let mut setup = http2_setup(&server.url("/"), users(2), 2);
        (setup.template.method, setup.template.body) = (http::Method::POST, vec![b'x'; 40_000]);
        setup.timeout = Duration::from_millis(if window == 0 { 20 } else { 30_000 });
        setup.limit_requests(4, None).unwrap();
        measure(&setup)
    };
    let load = post(60_000);
    assert_eq!((load.requests, load.bytes, load.errors.count()), (4, 160_000, 0), "{load:?}");
    let load = post(0);
    assert_eq!((load.errors.timed_out, load.requests), (4, 0), "{load:?}");
}

#[test]
fn silent_servers_time_out() {
    let impatient = |url: &str| {
        let timeout = Duration::from_millis(20);
        let mut setup = LoadSetup { timeout, ..http2_setup(url, users(4), 2) };
        setup.limit_requests(8, None).unwrap();
        measure(&setup)
    };
    let load = impatient(&Http2Server::start(|_| Reply::Nothing).url("/"));
    assert!(load.errors.timed_out == 8 && load.requests == 0, "{load:?}");
    assert_eq!(load.errors.first.as_deref(), Some("no answer within the time-out"));
    // One that never tells its settings, and one that allows nothing.
    for bytes in [Vec::new(), settings(&[(3, 0)])] {
        let load = impatient(&format!("http://{}/", start_raw(bytes, read_all)));
        assert!(load.errors.timed_out == 8 && load.errors.count() == 8, "{load:?}");
    }
}

#[test]
fn servers_of_other_protocols_are_named() {
    let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec();
    let goodbye = [settings(&[]), frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2])].concat();
    let half_closed = |socket: &mut TcpStream| {
        let _ = socket.shutdown(std::net::Shutdown::Write);
        read_all(socket);
    };
    for (bytes, text) in [
        (answer, "does not speak HTTP/2"),
        (Vec::new(), "does not speak HTTP/2"),
        (settings(&[]), "closed the connection"),
        (goodbye, "HTTP/2: "),
        ([settings(&[]), frame(0, 0, 0, b"data of no stream")].concat(), "HTTP/2: "),
        ([settings(&[]), vec![0xff; 100]].concat(), "HTTP/2: "),
    ] {
        let address = start_raw(bytes, half_closed);
        let load = measure(&http2_setup(&format!("http://{address}/"), users(4), 2));
        assert!(load.requests == 0 && load.errors.count() > 0, "{load:?}");
        assert!(load.errors.first.as_ref().unwrap().contains(text), "{text}: {load:?}");
    }
}

#[test]
fn server_that_is_gone_is_no_connection() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let setup = http2_setup(&format!("http://{address}/"), users(4), 2);
    assert!(ServerEndpoint::connect_first(&setup).is_err());
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut setup = http2_setup(&format!("http://{}/", server.local_addr().unwrap()), users(4), 2);
    let peer = ServerEndpoint::connect_first(&setup).unwrap();
    drop(server);
    setup.limit_requests(8, None).unwrap();
    let load = run_load(&setup, &peer, &mut |_| {}).unwrap().result;
    assert_eq!((load.errors.connect, load.errors.count()), (8, 8), "{load:?}");
}

proptest! {
    // Each takes a tenth of a second, after which requests are looked at for their time-out.
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever a server sends, each request ends.
    #[test]
    fn any_frames_end_in_errors(
        frames in proptest::collection::vec((0u8..11, any::<u8>(), 0u32..8, proptest::collection::vec(any::<u8>(), 0..40)), 1..12),
        has_settings: bool,
    ) {
        let mut bytes = if has_settings { settings(&[]) } else { Vec::new() };
        for (kind, flags, stream, payload) in &frames {
            bytes.extend(frame(*kind, *flags, *stream, payload));
        }
        let address = start_raw(bytes, read_all);
        let mut setup = http2_setup(&format!("http://{address}/"), users(4), 2);
        setup.timeout = Duration::from_millis(5);
        setup.limit_requests(4, None).unwrap();
        let load = run_load(&setup, &ServerEndpoint::connect_first(&setup).unwrap(), &mut |_| {}).unwrap().result;
        prop_assert_eq!(load.requests + load.errors.count(), 4, "{:?}", load);
    }
}
