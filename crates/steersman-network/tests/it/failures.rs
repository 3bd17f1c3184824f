//! Each failure of Neutron: its condition, its Event, and how it ends. `docs/network-operator.md` has the table.

use crate::environment::{Environment, INTERVAL, id_of, plain};
use serde_json::json;
use steersman_neutron::{Cloud as _, Fault, Operation, RequestId, SubnetCreate};

const DOCUMENT: &str = include_str!("../../../../docs/network-operator.md");

/// Faults of every call while an object is created, with the reason in its condition.
const OUTAGES: [(Fault, &str); 13] = [
    (Fault::Refuse, "NeutronUnreachable"),
    (Fault::DropRequest, "NeutronUnreachable"),
    (Fault::Unavailable, "NeutronUnavailable"),
    (Fault::Answer(500, "HTTPInternalServerError"), "NeutronUnavailable"),
    (Fault::Answer(502, ""), "NeutronUnavailable"),
    (Fault::Answer(401, ""), "NeutronCredentials"),
    (Fault::Answer(403, "PolicyNotAuthorized"), "NeutronForbidden"),
    (Fault::Answer(429, ""), "NeutronBusy"),
    (Fault::Answer(302, ""), "NeutronUnexpected"),
    (Fault::Answer(409, "VlanIdInUse"), "NeutronConflict"),
    (Fault::Answer(400, "InvalidInput"), "NeutronRefused"),
    (Fault::Answer(409, "OverQuota"), "QuotaExceeded"),
    (Fault::Answer(503, "NoNetworkAvailable"), "NoNetworkAvailable"),
];

/// Faults of a single call while an object is created, with the reason in its condition.
const CREATES: [(Operation, Fault, &str); 12] = [
    (Operation::CreateNetwork, Fault::LoseAnswer, "AnswerLost"),
    (Operation::CreateNetwork, Fault::Malformed, "AnswerLost"),
    (Operation::CreateNetwork, Fault::Answer(409, "OverQuota"), "QuotaExceeded"),
    (Operation::CreateNetwork, Fault::Answer(503, "NoNetworkAvailable"), "NoNetworkAvailable"),
    (Operation::CreateNetwork, Fault::Answer(403, "PolicyNotAuthorized"), "NeutronForbidden"),
    (Operation::AddNetworkTag, Fault::Answer(500, "HTTPInternalServerError"), "NeutronUnavailable"),
    (Operation::AddNetworkTag, Fault::Answer(404, "NetworkNotFound"), "NeutronChanged"),
    (Operation::CreateSubnet, Fault::LoseAnswer, "AnswerLost"),
    (Operation::CreateSubnet, Fault::Answer(409, "OverQuota"), "QuotaExceeded"),
    (Operation::CreateSubnet, Fault::Answer(404, "NetworkNotFound"), "NeutronChanged"),
    (Operation::CreateSubnet, Fault::Answer(409, "GatewayConflictWithAllocationPools"), "GatewayConflict"),
    (Operation::CreateSubnet, Fault::Answer(400, "InvalidInput"), "NeutronRefused"),
];

#[tokio::test(start_paused = true)]
async fn each_outage_has_its_condition_and_event_and_heals() {
    for (fault, reason) in OUTAGES {
        let environment = Environment::simulated().await;
        environment.cloud.set_outage(Some(fault));
        let operator = environment.operate();
        environment.create("a", plain()).await;
        let ready = environment.until_reason("a", reason).await;
        assert!(!ready.message.is_empty(), "{fault:?}");
        environment.eventually("an Event", async || environment.events("a").await.contains(&reason.to_owned())).await;
        environment.cloud.set_outage(None);
        environment.until_ready("a").await;
        assert_eq!(environment.networks().await.len(), 1, "{fault:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_failed_create_has_its_condition_and_event_and_leaves_one_pair() {
    for (operation, fault, reason) in CREATES {
        let environment = Environment::simulated().await;
        let operator = environment.operate();
        environment.cloud.next(operation, fault);
        environment.create("a", plain()).await;
        environment.eventually("an Event", async || environment.events("a").await.contains(&reason.to_owned())).await;
        let object = environment.until_ready("a").await;
        tokio::time::sleep(2 * INTERVAL).await;
        assert_eq!(environment.networks().await.len(), 1, "{operation:?} {fault:?}");
        assert_eq!(environment.subnets(id_of(&object)).await.len(), 1, "{operation:?} {fault:?}");
        operator.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_neutron_that_never_answers_holds_up_nobody_for_ever() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("slow", plain()).await;
    environment.cloud.next(Operation::CreateNetwork, Fault::Hang);
    environment.create("other", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"})).await;
    environment.until_ready("slow").await;
    environment.until_ready("other").await;
    tokio::time::sleep(3 * INTERVAL).await;
    assert_eq!(environment.networks().await.len(), 2);
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn addresses_that_somebody_else_has_are_said_and_left() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("a", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "replaceOnChange": true})).await;
    let id = id_of(&environment.until_ready("a").await);
    let theirs = SubnetCreate::new(id, "10.1.0.0/25".parse().unwrap());
    let theirs = environment.cloud.create_subnet(RequestId::random(), &theirs).await.unwrap();
    environment.respec("a", json!({"cidr": "10.1.0.0/24", "gateway": "10.1.0.1", "replaceOnChange": true})).await;
    let ready = environment.until_reason("a", "CIDROverlap").await;
    assert!(ready.message.contains(&theirs.id.to_string()) && ready.message.contains("10.1.0.0/25"), "{ready:?}");
    assert_eq!(environment.subnets(id).await.len(), 2, "looked before it deleted");
    environment.cloud.delete_subnet(RequestId::random(), theirs.id, None).await.unwrap();
    environment.until_ready("a").await;
    assert_eq!(environment.subnets(id).await[0].cidr.to_string(), "10.1.0.0/24");
    operator.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_says_nothing_of_networks_that_are_well() {
    let environment = Environment::simulated().await;
    let operator = environment.operate();
    environment.create("a", plain()).await;
    let before = environment.until_ready("a").await;
    environment.cloud.set_outage(Some(Fault::Refuse));
    tokio::time::sleep(10 * INTERVAL).await;
    let after = environment.api().get("a").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    operator.stop().await;
}

#[test]
fn the_document_has_every_reason() {
    let reasons = OUTAGES.iter().map(|(_, reason)| *reason).chain(CREATES.iter().map(|(_, _, reason)| *reason));
    let others = [
        "AdoptAmbiguous",
        "AdoptChanged",
        "AdoptNotFound",
        "AdoptTaken",
        "BackendChanged",
        "CIDROverlap",
        "ClusterChanged",
        "Differs",
        "Drifted",
        "InUse",
        "InvalidSpec",
        "MarkerCopied",
        "NetworkBuilding",
        "NetworkDown",
        "NetworkError",
        "NetworkNotActive",
        "NetworkReady",
        "NotRecognized",
        "ProjectChanged",
        "ReplaceRequired",
    ];
    for reason in reasons.chain(others) {
        assert!(DOCUMENT.contains(&format!("| `{reason}` |")), "docs/network-operator.md has no row for {reason}");
    }
}
