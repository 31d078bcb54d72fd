//! Failovers by real sentinels.

use tenure_testkit::{RespClient, Sentinels};

#[test]
fn a_deployment_starts_with_everybody_known() {
    let sentinels = Sentinels::start();
    let master = sentinels.master();
    let addrs: Vec<_> = sentinels.sentinels().iter().map(|one| one.addr()).collect();
    let [a, b, c] = addrs[..] else {
        panic!("three sentinels");
    };
    assert_eq!(
        sentinels.url(),
        format!("redis-sentinel://{a},{b},{c}/mymaster")
    );
    for addr in addrs {
        let mut client = RespClient::connect(addr);
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinels.name()];
        assert_eq!(
            client.command(&words).array()[1].int(),
            i64::from(master.port())
        );
        client.command(&["SENTINEL", "CKQUORUM", sentinels.name()]);
    }
    let mut client = master.client();
    client.command(&["SET", "k", "v"]);
    assert_eq!(client.command(&["WAIT", "2", "2000"]).int(), 2);
    assert_eq!(sentinels.replicas().len(), 2);
}
