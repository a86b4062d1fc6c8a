"""Static files as the ASGI server answers them: whole, with their headers, and without a warning."""

import pytest
from django.test import AsyncClient

ADDRESS = "/static/admin/css/base.css"


async def get(**headers):
    return await AsyncClient().get(ADDRESS, headers=headers)


async def test_a_file_is_answered_whole_with_its_type_and_the_strict_policy():
    response = await get()
    assert response.status_code == 200
    assert not response.streaming
    assert response["Content-Type"].startswith("text/css")
    assert int(response["Content-Length"]) == len(response.content) > 1000
    assert b"body" in response.content


async def test_an_unchanged_file_is_not_sent_again():
    first = await get()
    again = await get(**{"If-Modified-Since": first["Last-Modified"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_a_range_is_a_part():
    whole = (await get()).content
    part = await get(Range="bytes=10-19")
    assert (part.status_code, part.content) == (206, whole[10:20])


@pytest.mark.django_db
async def test_what_is_no_file_is_left_to_the_pages():
    assert (await AsyncClient().get("/livez")).content == b"ok\n"
