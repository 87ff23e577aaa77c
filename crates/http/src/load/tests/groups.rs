//! Loads whose requests are of several kinds, and loads in stages: figures of each.

use kelvin_core::load::{GroupFigures, StageLevel};

use super::*;
use crate::load::request_mix::RequestKind;
use crate::load::stages::Stage;

/// What of a group was answered, and what was not.
fn counts(figures: &GroupFigures) -> (u64, u64) {
    assert_eq!(figures.response.count, figures.requests);
    (figures.requests, figures.failed_requests)
}

#[test]
fn kinds_are_sent_as_described_and_counted_apart() {
    // Each request is right only with what its own kind has.
    let server = ScriptedServer::start(|request| {
        let is_right = match request.head.split(" HTTP").next().unwrap() {
            "GET /a" | "GET /b" => request.body.is_empty(),
            "POST /order" => request.body == b"{}" && request.head.contains("x-kind: order\r\n"),
            "HEAD /head" => return (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec(), AfterAnswer::Stay),
            _ => false,
        };
        let status = if is_right { "200 OK" } else { "400 Bad" };
        (format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").into_bytes(), AfterAnswer::Stay)
    });
    let kind = |name: &str, weight, method, paths: &[&str]| RequestKind {
        name: name.into(),
        weight,
        template: RequestTemplate { method, ..RequestTemplate::default() },
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    };
    let mut order = kind("order", 2.0, http::Method::POST, &["/order"]);
    order.template.body = b"{}".to_vec();
    order.template.headers = vec![crate::load::request::parse_header("x-kind: order").unwrap()];
    let wrong = kind("wrong", 1.0, http::Method::GET, &["/none"]);
    let list = kind("list", 5.0, http::Method::GET, &["/a", "/b"]);
    let kinds = vec![
        list,
        order,
        kind("head", 2.0, http::Method::HEAD, &["/head"]),
        wrong,
        kind("never", 0.0, http::Method::GET, &["/"]),
    ];
    for threads in [1, 3] {
        let mut setup = LoadSetup { threads: GeneratorThreads::Unpinned(threads), ..two_user_setup(&server) };
        setup.demand = Demand::Users { users: 5, think: ZERO_THINK_TIME };
        setup.mix(kinds.clone());
        setup.limit_requests(1000, None).unwrap();
        let load = measure(&setup);
        let [list, order, head, wrong, never] = &load.kinds[..] else { panic!("{load:?}") };
        let [list_count, order_count, head_count] = [list, order, head].map(|kind| counts(&kind.figures));
        // Five standard deviations of 1000 draws with probabilities 0.5 and 0.2.
        assert!(list_count.0.abs_diff(500) < 80 && order_count.0.abs_diff(200) < 64, "{:?}", load.kinds);
        assert_eq!(
            (list_count.1, order_count.1, head_count.1, counts(&wrong.figures).0, counts(&never.figures)),
            (0, 0, 0, 0, (0, 0))
        );
        assert_eq!((head.figures.bytes, order.figures.bytes), (0, 2 * order_count.0));
        assert_eq!(list_count.0 + order_count.0 + head_count.0, load.requests);
        assert_eq!((load.errors.count(), load.requests + load.errors.count()), (wrong.figures.failed_requests, 1000));
    }
}

#[test]
fn stages_have_their_rates_and_their_figures() {
    let server = ScriptedServer::start(|_| (ok(b"x"), AfterAnswer::Stay));
    for threads in [1, 3] {
        let stages = [(50, 200.0), (50, 0.0), (100, 500.0)];
        let stages = stages.map(|(time, level)| Stage { duration: Duration::from_millis(time), level });
        let mut setup = LoadSetup { threads: GeneratorThreads::Unpinned(threads), ..two_user_setup(&server) };
        setup.demand =
            Demand::RateStages { stages: stages.into(), arrivals: TimeDistribution::Constant, connections: 20 };
        let load = measure(&setup);
        let stages: Vec<_> = load.stages.iter().map(|stage| (stage.level, counts(&stage.figures).0)).collect();
        let expected = [(200.0, 10), (0.0, 0), (500.0, 50)].map(|(rate, count)| (StageLevel::Rate(rate), count));
        assert_eq!((stages, load.requests, load.errors.count()), (expected.to_vec(), 60, 0), "{load:?}");
        let OfferedLoad::Rate { rate, .. } = load.offered else { panic!("{load:?}") };
        assert!((rate - 300.0).abs() < 1e-6, "{rate}");
    }
}

#[test]
fn stages_have_their_users() {
    // Each answer takes so long that a user has few of them.
    let server = ScriptedServer::start(|request| {
        request.wait(Duration::from_millis(5));
        (ok(b"x"), AfterAnswer::Stay)
    });
    let stages =
        [(60, 1), (60, 0), (80, 6)].map(|(time, level)| Stage { duration: Duration::from_millis(time), level });
    for threads in [1, 3] {
        let mut setup = LoadSetup { threads: GeneratorThreads::Unpinned(threads), ..two_user_setup(&server) };
        setup.demand = Demand::UserStages { stages: stages.to_vec().into(), think: ZERO_THINK_TIME };
        let load = measure(&setup);
        let [first, pause, last] = [0, 1, 2].map(|number: usize| counts(&load.stages[number].figures).0);
        // One user has at most an answer in 5 ms, and in the pause the one for which the request was sent before.
        assert!(first <= 12 && pause <= 1 && last <= 96 && load.requests > 0, "{load:?}");
        assert_eq!((first + pause + last, load.errors.count()), (load.requests, 0));
        assert!(load.connections <= 6 && load.stages[2].level == StageLevel::Users(6), "{load:?}");
    }
}
