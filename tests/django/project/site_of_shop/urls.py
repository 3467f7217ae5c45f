from bookshop import views
from django.contrib import admin
from django.urls import path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("order/", views.order),
    path("order/fail/", views.failing_order),
    path("order/later/", views.order_on_commit),
    path("order/async/", views.async_order),
]
