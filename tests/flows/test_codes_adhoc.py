import time, asyncio, cProfile, pstats, msgspec
from engine.flows.codes.send import CodeSender
from engine.flows.codes.types import StartRequest
from engine.flows.sending.accept import Origin
from tests.harness.outbound import world

async def test_x(settings, lasting_database):
    async with world(settings, await lasting_database()) as w:
        s = CodeSender(w.pool, w.acceptor, w.settings)
        async def one(n):
            r = msgspec.convert({"to": f"u{n}@people.test", "from": w.account.sender}, StartRequest)
            t=time.perf_counter(); c=time.process_time()
            await s.start(r, Origin(w.account.id, "verification"))
            return time.perf_counter()-t
        for n in range(20): await one(n)
        c=time.process_time(); t=time.perf_counter()
        ts=sorted([await one(1000+n) for n in range(200)])
        print("SEQ", 1000*ts[100], 1000*ts[198], "cpu ms each", 1000*(time.process_time()-c)/200)
        c=time.process_time(); t=time.perf_counter()
        ts=sorted(await asyncio.gather(*[one(5000+n) for n in range(100)]))
        print("PAR 100 total", time.perf_counter()-t, "cpu ms each", 1000*(time.process_time()-c)/100)
        p=cProfile.Profile(); p.enable()
        for n in range(100): await one(9000+n)
        p.disable(); pstats.Stats(p).sort_stats("cumtime").print_stats(45)
