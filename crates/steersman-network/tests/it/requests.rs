//! The number of requests that the operator sends to Neutron.

use crate::environment::{Environment, INTERVAL, plain};
use serde_json::json;
use std::time::Duration;
use steersman_neutron::{
    Cloud as _, Fault, Gateway, NetworkCreate, NetworkId, Operation, RequestId, SubnetCreate, SubnetUpdate,
};

/// The most calls for an object in any minute, however things go wrong: seven attempts of nine calls, where the jitter
/// makes the waits short, and two listings. `docs/network-operator.md` names this number.
const CALLS_PER_MINUTE_MAX: u64 = 70;

#[tokio::test(start_paused = true)]
async fn while_nothing_happens_one_listing_per_interval_is_all() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    for index in 0..30 {
        environment
            .create(
                &format!("n-{index}"),
                json!({"cidr": format!("10.0.{index}.0/24"), "gateway": format!("10.0.{index}.1")}),
            )
            .await;
    }
    for index in 0..30 {
        environment.until_ready(&format!("n-{index}")).await;
    }
    tokio::time::sleep(2 * INTERVAL).await;
    let before = environment.cloud.n_calls();
    tokio::time::sleep(20 * INTERVAL).await;
    let n_calls = environment.cloud.n_calls() - before;
    // Networks and subnets, once each; the interval varies by a tenth.
    assert!((36..=46).contains(&n_calls), "{n_calls} calls for 30 objects in 20 intervals");

    // A start costs no more.
    operator.stop().await;
    let before = environment.cloud.n_calls();
    let operator = environment.operate();
    tokio::time::sleep(INTERVAL / 2).await;
    let n_calls = environment.cloud.n_calls() - before;
    assert_eq!(n_calls, 2, "calls after a start");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn adopted_networks_of_another_project_are_listed_together() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    let request = RequestId::random();
    for index in 0..10 {
        let theirs = NetworkCreate { project_id: Some("other".to_owned()), ..NetworkCreate::default() };
        let id = environment.cloud.create_network(request, &theirs).await.unwrap().id;
        let cidr = format!("10.0.{index}.0/24");
        let subnet =
            SubnetCreate { project_id: Some("other".to_owned()), ..SubnetCreate::new(id, cidr.parse().unwrap()) };
        environment.cloud.create_subnet(request, &subnet).await.unwrap();
        environment.create(&format!("n-{index}"), json!({"cidr": cidr, "adopt": {"id": id.to_string()}})).await;
    }
    for index in 0..10 {
        environment.until_ready(&format!("n-{index}")).await;
    }
    tokio::time::sleep(2 * INTERVAL).await;
    let before = environment.cloud.n_calls();
    tokio::time::sleep(20 * INTERVAL).await;
    let n_calls = environment.cloud.n_calls() - before;
    // The networks and subnets of the project, and the ones in other projects.
    assert!((72..=92).contains(&n_calls), "{n_calls} calls for 10 objects in 20 intervals");

    // Changes there are found all the same.
    let id =
        environment.api().get("n-3").await.unwrap().status.unwrap().network_id.unwrap().parse::<NetworkId>().unwrap();
    let change = SubnetUpdate { gateway: Gateway::Disabled, ..SubnetUpdate::default() };
    let subnet = environment.subnets(id).await[0].id;
    environment
        .respec("n-3", json!({"cidr": "10.0.3.0/24", "gateway": "10.0.3.1", "adopt": {"id": id.to_string()}}))
        .await;
    environment.until_ready("n-3").await;
    tokio::time::sleep(2 * INTERVAL).await;
    environment.cloud.update_subnet(request, subnet, &change, None).await.unwrap();
    tokio::time::sleep(2 * INTERVAL).await;
    assert_eq!(environment.subnets(id).await[0].gateway_ip, "10.0.3.1".parse().ok());
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn making_a_network_takes_few_calls() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("first", plain()).await;
    environment.until_ready("first").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = environment.cloud.n_calls();
    environment.create("second", plain()).await;
    environment.until_ready("second").await;
    let n_calls = environment.cloud.n_calls() - before;
    // Two searches for the marker, then network, tag, subnet.
    assert_eq!(n_calls, 5);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn however_it_fails_an_object_costs_a_bounded_number_of_calls_a_minute() {
    let faults = [
        Fault::Refuse,
        Fault::Unavailable,
        Fault::DropRequest,
        Fault::Answer(401, "Unauthorized"),
        Fault::Answer(403, "PolicyNotAuthorized"),
        Fault::Answer(404, "NetworkNotFound"),
        Fault::Answer(409, "OverQuota"),
        Fault::Answer(412, "RevisionNumberConstraintFailed"),
        Fault::Answer(429, "TooManyRequests"),
        Fault::Answer(500, "HTTPInternalServerError"),
    ];
    for fault in faults {
        let environment = Environment::simulated().await;
        let operator = environment.operate();
        environment.create("made", plain()).await;
        environment.until_ready("made").await;
        environment.cloud.set_outage(Some(fault));
        environment.create("wanted", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"})).await;
        let mut counts = Vec::new();
        for _ in 0..60 {
            let before = environment.cloud.n_calls();
            tokio::time::sleep(Duration::from_secs(60)).await;
            counts.push(environment.cloud.n_calls() - before);
        }
        let most = counts.iter().max().unwrap();
        assert!(*most <= CALLS_PER_MINUTE_MAX, "{fault:?}: {counts:?}");
        let last: u64 = counts[30..].iter().sum();
        assert!(last <= 30 * 12, "{fault:?}, in the second half hour: {counts:?}");
        println!("{fault:?}: at most {most} calls in a minute, {:.1} later", last as f64 / 30.0);
        operator.kill().await;
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_who_changes_the_same_network_all_the_time_costs_no_more() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("a", plain()).await;
    environment.until_ready("a").await;
    for _ in 0..1000 {
        environment.cloud.next(Operation::UpdateNetwork, Fault::Answer(412, "RevisionNumberConstraintFailed"));
    }
    environment.respec("a", json!({"cidr": "10.0.0.0/24", "description": "other"})).await;
    let mut counts = Vec::new();
    for _ in 0..30 {
        let before = environment.cloud.n_calls();
        tokio::time::sleep(Duration::from_secs(60)).await;
        counts.push(environment.cloud.n_calls() - before);
    }
    assert!(counts.iter().all(|count| *count <= CALLS_PER_MINUTE_MAX), "{counts:?}");
    println!("somebody else at work: {counts:?}");
    environment.until_reason("a", "NeutronChanged").await;
    environment.cloud.clear();
    environment.until_ready("a").await;
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_hours_an_object_is_made_within_minutes() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.cloud.set_outage(Some(Fault::Refuse));
    environment.create("a", plain()).await;
    tokio::time::sleep(Duration::from_secs(6 * 3600)).await;
    environment.cloud.set_outage(None);
    let back = tokio::time::Instant::now();
    environment.until_ready("a").await;
    assert!(back.elapsed() <= Duration::from_secs(140), "{:?}", back.elapsed());
    operator.stop().await;
}
