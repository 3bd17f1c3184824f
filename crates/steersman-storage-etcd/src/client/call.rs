//! The calls of etcd's API: where each goes, and what answers it.

use crate::proto::{
    AuthenticateRequest, AuthenticateResponse, CompactionRequest, DeleteRangeRequest, Done, LeaseGrantRequest,
    LeaseGrantResponse, RangeRequest, RangeResponse, ResponseHeader, StatusRequest, StatusResponse, TxnRequest,
    TxnResponse,
};

/// Whether an answer's revision is at least every revision that was seen before the call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    Any,
    Linearizable,
}

/// A request with one answer.
pub(crate) trait Call: prost::Message + Clone + Default + 'static {
    type Answer: prost::Message + Default + 'static;
    const ORDER: Order;
    const PATH: &'static str;

    fn header(answer: &Self::Answer) -> Option<ResponseHeader>;
}

macro_rules! calls {
    ($($request:ty => $answer:ty, $order:ident, $path:literal;)*) => {$(
        impl Call for $request {
            type Answer = $answer;
            const ORDER: Order = Order::$order;
            const PATH: &'static str = $path;

            fn header(answer: &$answer) -> Option<ResponseHeader> {
                answer.header
            }
        }
    )*};
}

calls! {
    AuthenticateRequest => AuthenticateResponse, Any, "/etcdserverpb.Auth/Authenticate";
    CompactionRequest => Done, Any, "/etcdserverpb.KV/Compact";
    DeleteRangeRequest => Done, Linearizable, "/etcdserverpb.KV/DeleteRange";
    LeaseGrantRequest => LeaseGrantResponse, Any, "/etcdserverpb.Lease/LeaseGrant";
    RangeRequest => RangeResponse, Linearizable, "/etcdserverpb.KV/Range";
    StatusRequest => StatusResponse, Any, "/etcdserverpb.Maintenance/Status";
    TxnRequest => TxnResponse, Linearizable, "/etcdserverpb.KV/Txn";
}
