# Calls each target by gRPC's C-core, and prints how the call ended.
import sys
import grpc

for target in sys.argv[1:]:
    channel = grpc.insecure_channel("xds:///" + target)
    call = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
    try:
        call(b"", timeout=60)
        print(target + ": OK")
    except grpc.RpcError as e:
        print(target + ":", e.code().name, e.details())
