import asyncio


async def test_x(api, pool):
    from tests.harness.accounts import make_account

    a = await make_account(pool)
    r = await api.post("/v1/emails", a.token, a.email())
    await asyncio.sleep(100)
