"""Letters to customers. All of them go to the queue `mail`, by the routes of the app."""

from celery import shared_task
from celery.utils.log import get_task_logger

from ..bank import note

logger = get_task_logger(__name__)


@shared_task(ignore_result=True)
def send_mail(to, subject):
    logger.info("mail to %s", to)
    note("mails", f"{to}: {subject}")


@shared_task(rate_limit="10/m")
def newsletter(addresses):
    for address in addresses:
        send_mail.delay(address, subject="News")  # one task for each
    return len(addresses)
